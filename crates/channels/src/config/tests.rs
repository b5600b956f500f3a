//! Every check of the private configuration, on real files.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

use serde_json::{Value, json};

use super::*;

const SECRET: &str = "123456:secret-of-the-bot";

/// A directory with a configuration of one profile, which each test then breaks.
struct Place {
    _home: tempfile::TempDir,
    directory: PathBuf,
}

impl Place {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("holdpoint");
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .unwrap();
        let place = Self {
            _home: home,
            directory,
        };
        place.write("token", format!(" {SECRET}\n"));
        place.json(CHANNELS_FILE, &Self::channels());
        place.json(CREDENTIALS_FILE, &place.credentials());
        place
    }

    fn channels() -> Value {
        json!({
            "schema": CHANNELS_SCHEMA,
            "audiences": {"operator": {"channels": ["pi", "telegram:ops"], "accept": "first-valid-answer"}},
            "telegramProfiles": {"ops": {"credential": "bot", "allowedUserIds": ["100"], "allowedChatIds": ["300", "-200", "300"]}},
        })
    }

    fn credentials(&self) -> Value {
        json!({"schema": CREDENTIALS_SCHEMA, "telegram": {"bot": {"tokenFile": self.directory.join("token")}}})
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.directory.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn json(&self, name: &str, value: &Value) {
        self.write(name, serde_json::to_vec(value).unwrap());
    }

    /// The configuration with one place of `channels.json` changed.
    fn with(&self, pointer: &str, value: Value) -> Result<Config, ConfigError> {
        let mut channels = Self::channels();
        *channels.pointer_mut(pointer).unwrap() = value;
        self.json(CHANNELS_FILE, &channels);
        self.load()
    }

    fn load(&self) -> Result<Config, ConfigError> {
        let loaded = Config::load(&self.directory);
        if let Err(error) = &loaded {
            assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
        }
        loaded
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.directory.join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    }
}

#[test]
fn a_whole_configuration_is_read() {
    let config = Place::new().load().unwrap();
    let ops = ChannelId::telegram("ops").unwrap();
    assert_eq!(
        config.channels_of("operator"),
        [ChannelId::local(), ops.clone()]
    );
    assert_eq!(config.channels_of("nobody"), [ChannelId::local()]);
    assert!(config.reaches("operator", &ops) && !config.reaches("nobody", &ops));
    assert!(config.reaches("nobody", &ChannelId::local()));
    let profile = config.profile("ops").unwrap();
    assert_eq!(profile.token.expose(), SECRET);
    assert_eq!(profile.allowed_chat_ids, ["-200", "300"]);
    assert!(profile.allows("100", "-200"));
    for (user, chat) in [("100", "100"), ("300", "300"), ("", ""), ("0100", "300")] {
        assert!(!profile.allows(user, chat));
    }
    assert!(!format!("{config:?}").contains(SECRET));
}

#[test]
fn an_empty_list_allows_nobody() {
    let token = Token::new(zeroize::Zeroizing::new("t".to_owned())).unwrap();
    let profile = Profile {
        token,
        allowed_user_ids: vec![],
        allowed_chat_ids: vec!["300".into()],
        persons: BTreeMap::new(),
    };
    assert!(!profile.allows("100", "300") && !profile.allows("", "300"));
}

#[test]
fn without_a_file_everything_is_local() {
    let home = tempfile::tempdir().unwrap();
    let config = Config::load(&home.path().join("none")).unwrap();
    assert!(config.profiles().is_empty());
    assert_eq!(config.channels_of("operator"), [ChannelId::local()]);
}

#[test]
fn channel_43_a_file_that_others_may_read_is_named() {
    for (name, mode) in [
        (CHANNELS_FILE, 0o644),
        (CREDENTIALS_FILE, 0o640),
        ("token", 0o602),
        ("", 0o755),
    ] {
        let place = Place::new();
        let path = place.directory.join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = place.load().unwrap_err();
        assert!(
            matches!(&error, ConfigError::NotPrivate { mode: found, .. } if *found == mode),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains(path.to_str().unwrap().trim_end_matches('/')),
            "{error}"
        );
    }
}

#[test]
fn channel_44_an_audience_of_a_missing_profile_is_an_error() {
    let place = Place::new();
    for channel in [
        "telegram:dev",
        "telegram:",
        "telegram",
        "slack:ops",
        "PI",
        "",
    ] {
        let error = place
            .with("/audiences/operator/channels/1", json!(channel))
            .unwrap_err();
        assert!(
            matches!(error, ConfigError::UnknownChannel { .. }),
            "{channel} {error}"
        );
    }
}

#[test]
fn channel_45_every_wrong_token_file_has_its_own_error() {
    let place = Place::new();
    let token = |path: &Path| {
        let credentials =
            json!({"schema": CREDENTIALS_SCHEMA, "telegram": {"bot": {"tokenFile": path}}});
        place.json(CREDENTIALS_FILE, &credentials);
        place.load().unwrap_err()
    };
    let directory = place.directory.join("a-directory");
    fs::create_dir(&directory).unwrap();
    assert!(matches!(token(&directory), ConfigError::NotAFile { .. }));
    place.write("empty", " \n");
    assert!(matches!(
        token(&place.directory.join("empty")),
        ConfigError::NoToken { .. }
    ));
    place.write("two", format!("{SECRET} {SECRET}"));
    assert!(matches!(
        token(&place.directory.join("two")),
        ConfigError::NoToken { .. }
    ));
    assert!(matches!(
        token(Path::new("token")),
        ConfigError::TokenPath { .. }
    ));
    assert!(matches!(
        token(&place.directory.join("none")),
        ConfigError::Io { .. }
    ));
    place.write("large", SECRET.repeat(1_000));
    assert!(matches!(
        token(&place.directory.join("large")),
        ConfigError::TooLarge { .. }
    ));
}

#[test]
fn every_rule_of_the_file_has_its_own_error() {
    let place = Place::new();
    let operator = "/audiences/operator";
    let ops = "/telegramProfiles/ops";
    let at = |base: &str, name: &str, value: Value| {
        place.with(&format!("{base}{name}"), value).unwrap_err()
    };
    assert!(matches!(
        at(operator, "/channels", json!([])),
        ConfigError::NoChannel { .. }
    ));
    assert!(matches!(
        at(operator, "/accept", json!("all")),
        ConfigError::Accept { .. }
    ));
    assert!(matches!(
        at(ops, "/allowedUserIds", json!([])),
        ConfigError::EmptyList {
            list: "allowedUserIds",
            ..
        }
    ));
    assert!(matches!(
        at(ops, "/allowedChatIds", json!(["@c"])),
        ConfigError::NotNumeric {
            list: "allowedChatIds",
            ..
        }
    ));
    assert!(matches!(
        at(ops, "/credential", json!("../x")),
        ConfigError::Name { .. }
    ));
    assert!(matches!(
        at(ops, "/credential", json!("other")),
        ConfigError::NoCredential { .. }
    ));
    assert!(matches!(
        at(ops, "/allowedUserIds", json!([100])),
        ConfigError::Shape { .. }
    ));
    assert!(matches!(
        at("/schema", "", json!("pi-workflows.channels.v2")),
        ConfigError::Schema { .. }
    ));
    assert!(matches!(
        at("/audiences", "", json!({"a b": {}})),
        ConfigError::Shape { .. }
    ));
    let named = json!({"a b": {"channels": ["pi"], "accept": "first-valid-answer"}});
    assert!(matches!(
        at("/audiences", "", named),
        ConfigError::Name { .. }
    ));
    let profile = Place::channels().pointer(ops).unwrap().clone();
    let twins = json!({"ops": profile, "ops2": profile});
    assert!(matches!(
        at("/telegramProfiles", "", twins),
        ConfigError::SharedToken { .. }
    ));
    for text in ["", "[]", "{}", r#"{"schema":"x"}"#] {
        place.write(CHANNELS_FILE, text);
        assert!(
            matches!(place.load(), Err(ConfigError::Shape { .. })),
            "{text}"
        );
    }
    let twice = format!(
        r#"{{"schema":"{CHANNELS_SCHEMA}","audiences":{{"a":{{"accept":"first-valid-answer","channels":["pi"]}},"a":{{"accept":"first-valid-answer","channels":["pi"]}}}}}}"#
    );
    place.write(CHANNELS_FILE, twice);
    assert!(matches!(place.load(), Err(ConfigError::Shape { .. })));
}

#[test]
fn setting_up_adds_and_keeps() {
    let place = Place::new();
    place.write("second", "654321:other-secret");
    let setup = Setup {
        profile: "dev".into(),
        credential: "dev-bot".into(),
        token_file: place.directory.join("second"),
        allowed_user_ids: vec!["7".into()],
        allowed_chat_ids: vec!["7".into()],
        audience: "operator".into(),
        replace: false,
    };
    assert_eq!(
        setup.token(&place.directory).unwrap().expose(),
        "654321:other-secret"
    );
    for _ in 0..2 {
        setup.write(&place.directory).unwrap();
        let config = place.load().unwrap();
        let channels: Vec<String> = config
            .channels_of("operator")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(channels, ["pi", "telegram:ops", "telegram:dev"]);
        assert_eq!(config.profiles().len(), 2);
    }
    let other = Setup {
        profile: "dev".into(),
        audience: "on-call".into(),
        allowed_user_ids: vec!["8".into(), "9".into()],
        ..setup.clone()
    };
    let files = || {
        [CHANNELS_FILE, CREDENTIALS_FILE].map(|name| fs::read(place.directory.join(name)).unwrap())
    };
    let before = files();
    let refused = other.write(&place.directory).unwrap_err();
    assert!(matches!(refused, ConfigError::WouldReplace { .. }));
    assert!(refused.to_string().ends_with(
        "the profile \"dev\" is configured otherwise (users: 0 kept, 1 gone, 2 new); say --replace to replace that"
    ), "{refused}");
    assert_eq!(files(), before, "nothing is written");
    let other = Setup {
        replace: true,
        ..other
    };
    other.write(&place.directory).unwrap();
    assert_eq!(other.replaces(&place.directory).unwrap(), None);
    let config = place.load().unwrap();
    assert_eq!(
        config.channels_of("on-call").first(),
        Some(&ChannelId::local())
    );
    assert_eq!(config.profile("dev").unwrap().allowed_user_ids, ["8", "9"]);
    place.write("third", SECRET);
    let moved = Setup {
        token_file: place.directory.join("third"),
        ..other.clone()
    };
    let replaced = moved.replaces(&place.directory).unwrap().unwrap();
    assert_eq!(replaced.to_string(), "another token file");
    assert_eq!(
        (place.mode(CHANNELS_FILE), place.mode(CREDENTIALS_FILE)),
        (0o600, 0o600)
    );
    let names = fs::read_dir(&place.directory).unwrap().count();
    assert_eq!(names, 5, "no temporary file is left");
    for wrong in [
        Setup {
            profile: "a/b".into(),
            ..setup.clone()
        },
        Setup {
            audience: String::new(),
            ..setup.clone()
        },
        Setup {
            token_file: "relative".into(),
            ..setup.clone()
        },
        Setup {
            allowed_chat_ids: vec![],
            ..setup.clone()
        },
    ] {
        assert!(wrong.write(&place.directory).is_err());
    }
    assert_eq!(place.load().unwrap().profiles().len(), 2);
}

#[test]
fn a_token_of_another_profile_is_refused_before_anything_is_written() {
    let place = Place::new();
    place.write("copy", SECRET);
    place.write("second", "654321:other-secret");
    let setup = Setup {
        profile: "dev".into(),
        credential: "dev".into(),
        token_file: place.directory.join("copy"),
        allowed_user_ids: vec!["7".into()],
        allowed_chat_ids: vec!["7".into()],
        audience: "operator".into(),
        replace: true,
    };
    let shared = |setup: &Setup| match setup.token(&place.directory) {
        Err(ConfigError::SharedToken { first, second, .. }) => Some((first, second)),
        _ => None,
    };
    let both = Some(("ops".to_owned(), "dev".to_owned()));
    assert_eq!(shared(&setup), both);
    // A credential that another profile has is taken from it as well.
    let taken = Setup {
        credential: "bot".into(),
        token_file: place.directory.join("second"),
        ..setup.clone()
    };
    assert_eq!(shared(&taken), both);
    // The same profile may be set up again with its own token.
    let again = Setup {
        profile: "ops".into(),
        credential: "bot".into(),
        ..setup
    };
    assert!(again.token(&place.directory).is_ok());
    assert_eq!(place.load().unwrap().profiles().len(), 1);
}

#[test]
fn a_first_profile_makes_the_directory() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("a").join("holdpoint");
    let token = home.path().join("token");
    fs::write(&token, SECRET).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let setup = Setup {
        profile: "ops".into(),
        credential: "ops".into(),
        token_file: token,
        allowed_user_ids: vec!["1".into()],
        allowed_chat_ids: vec!["1".into()],
        audience: "operator".into(),
        replace: false,
    };
    setup.write(&directory).unwrap();
    assert_eq!(
        fs::metadata(&directory).unwrap().permissions().mode() & 0o7777,
        0o700
    );
    assert_eq!(
        Config::load(&directory)
            .unwrap()
            .channels_of("operator")
            .len(),
        2
    );
}

#[test]
fn the_directory_is_the_first_that_is_named() {
    let variables = |pairs: &'static [(&'static str, &'static str)]| {
        directory(move |name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        })
    };
    let all: &[(&str, &str)] = &[
        ("HOLDPOINT_CONFIG_DIR", "/c"),
        ("XDG_CONFIG_HOME", "/x"),
        ("HOME", "/h"),
    ];
    assert_eq!(variables(all), Some(PathBuf::from("/c")));
    assert_eq!(
        variables(&[("HOLDPOINT_CONFIG_DIR", ""), ("XDG_CONFIG_HOME", "/x")]),
        Some(PathBuf::from("/x/holdpoint"))
    );
    assert_eq!(
        variables(&[("XDG_CONFIG_HOME", "x"), ("HOME", "/h")]),
        Some(PathBuf::from("/h/.config/holdpoint"))
    );
    assert_eq!(
        variables(&[("HOLDPOINT_CONFIG_DIR", "c"), ("HOME", "/h")]),
        None
    );
    assert_eq!(variables(&[]), None);
}

#[test]
fn case_073_who_may_answer_has_a_name_here_and_keeps_it_in_a_set_up() {
    let home = Place::new();
    let persons = json!({ "100": "command-line" });
    let mut ops = Place::channels()
        .pointer("/telegramProfiles/ops")
        .unwrap()
        .clone();
    ops["persons"] = persons;
    let config = home.with("/telegramProfiles/ops", ops.clone()).unwrap();
    let known = &config.profile("ops").unwrap().persons;
    assert_eq!(known.get("100").map(String::as_str), Some("command-line"));
    ops["persons"] = json!({ "@ann": "command-line" });
    assert!(matches!(
        home.with("/telegramProfiles/ops", ops).unwrap_err(),
        ConfigError::NotNumeric {
            list: "persons",
            ..
        }
    ));
}

#[test]
fn a_number_that_names_nobody_is_refused() {
    let place = Place::new();
    for (list, wrong, right) in [
        ("allowedUserIds", ["0", "-5"].as_slice(), "7"),
        ("allowedChatIds", &["0"], "-7"),
    ] {
        let pointer = format!("/telegramProfiles/ops/{list}/0");
        for id in wrong {
            let error = place.with(&pointer, json!(id)).unwrap_err();
            assert!(
                matches!(error, ConfigError::Nobody { list: found, .. } if found == list),
                "{id}: {error}"
            );
            assert_eq!(error.path(), place.directory.join(CHANNELS_FILE));
        }
        for id in [
            "-0",
            "00",
            "1e3",
            "@ann",
            " 7",
            "9223372036854775808",
            "\u{202e}7",
        ] {
            let error = place.with(&pointer, json!(id)).unwrap_err();
            assert!(
                matches!(error, ConfigError::NotNumeric { .. }),
                "{id}: {error}"
            );
        }
        place.with(&pointer, json!(right)).unwrap();
    }
}
