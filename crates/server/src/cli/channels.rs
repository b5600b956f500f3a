//! `channels …`: what may be typed.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// The verbs about channels.
#[derive(Debug, Subcommand)]
pub(crate) enum ChannelsVerb {
    /// Set a Telegram profile up: try its token, and add it to the private configuration.
    Setup(SetupArgs),
    /// List the audiences and profiles of the private configuration.
    List,
    /// Show which channels are hosted, what is shown, and what waits for a person.
    Status,
    /// Try the token of each profile, or of one.
    Test(TestArgs),
    /// Host the adapters of all profiles, and execute whatever is due, until Ctrl-C.
    Run(ChannelsRunArgs),
    /// Say what became of a delivery or settlement that nobody else can know of, or let a refused delivery be tried again.
    Recover(RecoverArgs),
    /// Play the Bot API on this machine, to try a channel without Telegram.
    DevServer(DevServerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    /// The name of the profile.
    #[arg(value_name = "PROFILE")]
    pub(crate) profile: String,

    /// The file that holds the bot's token, with mode 0600. The token itself is never typed.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,

    /// The numeric id of somebody who may answer. May be given several times.
    #[arg(
        long = "user",
        value_name = "ID",
        required = true,
        allow_negative_numbers = true
    )]
    pub(crate) users: Vec<String>,

    /// The numeric id of a chat where decisions are shown. May be given several times.
    #[arg(
        long = "chat",
        value_name = "ID",
        required = true,
        allow_negative_numbers = true
    )]
    pub(crate) chats: Vec<String>,

    /// The audience that is reached through the profile from now on.
    #[arg(long, value_name = "NAME", default_value = "operator")]
    pub(crate) audience: String,

    /// The name of the credential; otherwise that of the profile.
    #[arg(long, value_name = "NAME")]
    pub(crate) credential: Option<String>,

    /// Replace the users, chats and token file that the profile has now. Without it a profile that is configured otherwise stays as it is.
    #[arg(long)]
    pub(crate) replace: bool,

    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// The profile; otherwise all.
    #[arg(value_name = "PROFILE")]
    pub(crate) profile: Option<String>,

    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ChannelsRunArgs {
    /// Host the adapters only; something else executes the runs.
    #[arg(long)]
    pub(crate) no_work: bool,

    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// Where the Bot API is.
#[derive(Debug, Args)]
pub(crate) struct ApiArgs {
    /// Another address of the Bot API, such as that of `channels dev-server`.
    #[arg(long, value_name = "URL")]
    pub(crate) api_base: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// The attempt, as `channels status` names it.
    #[arg(value_name = "ATTEMPT")]
    pub(crate) attempt: String,

    /// What became of it.
    #[arg(value_name = "ACTION")]
    pub(crate) action: RecoverWord,
}

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecoverWord {
    /// It happened. Only of what is in doubt.
    Confirm,
    /// Do it again; what was in doubt may come twice. Also of a delivery that was refused for good.
    Retry,
}

#[derive(Debug, Args)]
pub(crate) struct DevServerArgs {
    /// The port on 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "N", default_value_t = 8_089)]
    pub(crate) port: u16,
}
