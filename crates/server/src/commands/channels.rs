//! `channels …`: setting up, looking, hosting, recovering.
//!
//! Nothing private is shown but what its own operator configured: names of profiles and audiences, never a token, a user or a chat.

mod hosting;
mod status;

use std::path::{Path, PathBuf};

use holdpoint_channels::config::{self, Config, Setup};
use holdpoint_channels::dev_server::{DevServer, TOKEN};
use holdpoint_channels::protocol::Token;
use holdpoint_channels::telegram::{ApiBase, BotToken, Client, Patience};
use holdpoint_channels::{ChannelError, ChannelId};
use serde_json::{Value, json};

use super::Context;
use crate::cli::channels::{ApiArgs, ChannelsVerb, DevServerArgs, SetupArgs, TestArgs};
use crate::error::{CommandError, ExitStatus};
use crate::output::text;

/// One verb.
pub(super) fn channels(context: &Context, verb: &ChannelsVerb) -> Result<ExitStatus, CommandError> {
    match verb {
        ChannelsVerb::Setup(args) => setup(context, args),
        ChannelsVerb::List => list(context),
        ChannelsVerb::Status => status::status(context),
        ChannelsVerb::Test(args) => test(context, args),
        ChannelsVerb::Run(args) => hosting::run(context, args),
        ChannelsVerb::Recover(args) => status::recover(context, args),
        ChannelsVerb::DevServer(args) => dev_server(context, args),
    }
}

/// One adapter, for the host that launched this process. No store is opened here.
pub(super) fn adapter() -> Result<ExitStatus, CommandError> {
    hosting::adapter()
}

/// Where the private configuration is.
fn directory() -> Result<PathBuf, CommandError> {
    config::directory(|name| std::env::var_os(name)).ok_or_else(|| {
        let problem = format!(
            "no absolute directory is known; set {} or HOME",
            config::DIRECTORY_VARIABLE
        );
        CommandError::input("configuration", problem)
    })
}

/// A number of things, as people say it.
fn counted(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

fn load(directory: &Path) -> Result<Config, CommandError> {
    Ok(Config::load(directory).map_err(ChannelError::from)?)
}

/// The address of the Bot API.
fn base(args: &ApiArgs) -> Result<ApiBase, CommandError> {
    match &args.api_base {
        None => Ok(ApiBase::default()),
        Some(text) => {
            ApiBase::new(text).map_err(|error| CommandError::input("api-base", error.to_string()))
        }
    }
}

/// Asks the provider who the bot is. Nothing of the request is in an error: its address holds the token.
fn ask(base: ApiBase, token: &Token) -> Result<String, String> {
    let token = BotToken::new(token.expose()).map_err(|error| error.to_string())?;
    let me = Client::new(base, token, Patience::default())
        .get_me()
        .map_err(|failure| format!("{failure} ({})", failure.code()))?;
    Ok(me
        .username
        .map_or_else(|| format!("bot {}", me.id), |name| format!("@{name}")))
}

/// `channels setup PROFILE --token-file FILE --user ID --chat ID`.
fn setup(context: &Context, args: &SetupArgs) -> Result<ExitStatus, CommandError> {
    let directory = directory()?;
    let setup = Setup {
        profile: args.profile.clone(),
        credential: args
            .credential
            .clone()
            .unwrap_or_else(|| args.profile.clone()),
        token_file: std::path::absolute(&args.token_file).map_err(|source| CommandError::Io {
            action: format!("finding {}", args.token_file.display()),
            source,
        })?,
        allowed_user_ids: args.users.clone(),
        allowed_chat_ids: args.chats.clone(),
        audience: args.audience.clone(),
        replace: args.replace,
    };
    let token = setup.token(&directory).map_err(ChannelError::from)?;
    let bot =
        ask(base(&args.api)?, &token).map_err(|problem| CommandError::input("token", problem))?;
    let replaced = setup.replaces(&directory).map_err(ChannelError::from)?;
    setup.write(&directory).map_err(ChannelError::from)?;
    context.output.document(&json!({
        "profile": args.profile, "channel": format!("telegram:{}", args.profile), "audience": args.audience, "bot": bot,
        "replaced": replaced,
    }))?;
    if let Some(replaced) = replaced {
        context
            .output
            .line(format!("replaced what was configured: {replaced}"));
    }
    context.output.line(format!(
        "telegram:{} reaches {} as {}; `{}` hosts it",
        args.profile,
        args.audience,
        text::line(&bot),
        context.hint(&["channels", "run"])
    ));
    Ok(ExitStatus::Done)
}

/// `channels list`.
fn list(context: &Context) -> Result<ExitStatus, CommandError> {
    let config = load(&directory()?)?;
    let audiences: Vec<Value> = config
        .audiences()
        .map(|(name, channels)| json!({ "audience": name, "channels": channels }))
        .collect();
    let profiles: Vec<Value> = config
        .profiles()
        .iter()
        .map(|(name, profile)| {
            json!({ "profile": name, "users": profile.allowed_user_ids.len(), "chats": profile.allowed_chat_ids.len() })
        })
        .collect();
    context
        .output
        .document(&json!({ "audiences": audiences, "profiles": profiles }))?;
    for (name, channels) in config.audiences() {
        let channels: Vec<&str> = channels.iter().map(ChannelId::as_str).collect();
        context
            .output
            .line(format!("{name}: {}", channels.join(", ")));
    }
    context.output.line("every other audience: pi");
    for (name, profile) in config.profiles() {
        context.output.line(format!(
            "telegram:{name}: {}, {}",
            counted(profile.allowed_user_ids.len(), "user"),
            counted(profile.allowed_chat_ids.len(), "chat")
        ));
    }
    Ok(ExitStatus::Done)
}

/// `channels test [PROFILE]`.
fn test(context: &Context, args: &TestArgs) -> Result<ExitStatus, CommandError> {
    let config = load(&directory()?)?;
    let base = base(&args.api)?;
    if let Some(profile) = args
        .profile
        .as_deref()
        .filter(|profile| config.profile(profile).is_none())
    {
        return Err(CommandError::input(
            "profile",
            format!("{profile:?} is not configured; see `holdpoint channels list`"),
        ));
    }
    let mut tried = Vec::new();
    let mut all_work = true;
    for (name, profile) in config.profiles() {
        if args.profile.as_deref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let asked = ask(base.clone(), &profile.token);
        all_work &= asked.is_ok();
        let (bot, problem) = (asked.as_ref().ok(), asked.as_ref().err());
        tried.push(json!({ "profile": name, "bot": bot, "problem": problem }));
        match &asked {
            Ok(bot) => context
                .output
                .line(format!("telegram:{name}: {}", text::line(bot))),
            Err(problem) => context.output.line(format!("telegram:{name}: {problem}")),
        }
    }
    context.output.document(&json!({ "profiles": tried }))?;
    if tried.is_empty() {
        context.output.line("no profile is configured");
    }
    Ok(if all_work {
        ExitStatus::Done
    } else {
        ExitStatus::Failed
    })
}

/// `channels dev-server`.
fn dev_server(context: &Context, args: &DevServerArgs) -> Result<ExitStatus, CommandError> {
    let io = |source| CommandError::Io {
        action: "starting the server".to_owned(),
        source,
    };
    let token =
        BotToken::new(TOKEN).map_err(|error| CommandError::input("token", error.to_string()))?;
    let server = DevServer::start_on(args.port, &token).map_err(io)?;
    context
        .output
        .document(&json!({ "url": server.url(), "token": TOKEN }))?;
    context.output.line(server.help().trim_end());
    context.output.line("Ctrl-C ends it.");
    hosting::wait_for_signal().map_err(io)?;
    Ok(ExitStatus::Done)
}
