//! The private configuration: which audience is reached through which channel, who may answer there, and where the tokens are.
//!
//! Two files in one directory of the user, `channels.json` and `credentials.json`, and one file for each token, all readable by the
//! user alone. What is read here stays in the memory of the host: nothing of it is written to the database, a log, a view, an
//! argument or the environment. Errors name the file and what is wrong with it, never what it holds. Not here: asking a provider
//! whether a token is good (`telegram`).

mod files;
mod setup;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use setup::{Counts, Replaced, Setup};

use crate::identity::{ChannelId, LOCAL};
use crate::protocol::{Token, is_name, is_numeric};

/// The variable that names the directory.
pub const DIRECTORY_VARIABLE: &str = "HOLDPOINT_CONFIG_DIR";
/// Who is reached how.
pub const CHANNELS_FILE: &str = "channels.json";
/// Where the tokens are.
pub const CREDENTIALS_FILE: &str = "credentials.json";
/// The only accept policy.
pub const FIRST_VALID_ANSWER: &str = "first-valid-answer";

const CHANNELS_SCHEMA: &str = "pi-workflows.channels.v1";
const CREDENTIALS_SCHEMA: &str = "pi-workflows.credentials.v1";
/// The list of those who may answer.
const USERS: &str = "allowedUserIds";
/// The list of where a profile shows decisions.
const CHATS: &str = "allowedChatIds";

/// What is wrong with the configuration. No adapter starts; the local channel works all the same.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file or directory can't be read or written.
    #[error("{action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Others than the user may read or write it. Run `chmod` with the mode that is named.
    #[error("{} has mode {mode:04o}; only its owner may have access: chmod {wanted:04o}", path.display())]
    NotPrivate {
        /// The file or directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// The mode it needs.
        wanted: u32,
    },
    /// It is a directory, a pipe or something else.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The place of the configuration is something else than a directory.
    #[error("{} is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// It is larger than such a file can be.
    #[error("{} is larger than {bytes_max} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        bytes_max: u64,
    },
    /// It is not strict JSON of its shape: a member is missing, unknown, twice there or of another type.
    #[error("{}, line {line} column {column}: not what {schema} has there", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The schema that it should have.
        schema: &'static str,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// The file has another schema.
    #[error("{} has another schema than {schema}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema that it should have.
        schema: &'static str,
    },
    /// A name of a profile, a credential or an audience breaks the rule of names.
    #[error("{}: {what} {name:?} is no name: letters, digits, dot, underscore and dash, at most 200, the first a letter or digit", path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// What is named.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An audience has no channel.
    #[error("{}: the audience {audience:?} has no channel", path.display())]
    NoChannel {
        /// The file.
        path: PathBuf,
        /// The audience.
        audience: String,
    },
    /// An audience names a channel that is not configured.
    #[error("{}: the audience {audience:?} names the channel {channel:?}, which is neither {LOCAL:?} nor a configured profile", path.display())]
    UnknownChannel {
        /// The file.
        path: PathBuf,
        /// The audience.
        audience: String,
        /// The channel.
        channel: String,
    },
    /// There is another accept policy.
    #[error("{}: the audience {audience:?} accepts by another policy than {FIRST_VALID_ANSWER:?}", path.display())]
    Accept {
        /// The file.
        path: PathBuf,
        /// The audience.
        audience: String,
    },
    /// A list of users or chats is empty: nobody could answer.
    #[error("{}: {list} of the profile {profile:?} is empty", path.display())]
    EmptyList {
        /// The file.
        path: PathBuf,
        /// The profile.
        profile: String,
        /// The list.
        list: &'static str,
    },
    /// A user or chat is not a decimal number.
    #[error("{}: {list} of the profile {profile:?} holds something that is no decimal id", path.display())]
    NotNumeric {
        /// The file.
        path: PathBuf,
        /// The profile.
        profile: String,
        /// The list.
        list: &'static str,
    },
    /// A user or chat is a number that names nobody.
    #[error("{}: {list} of the profile {profile:?} holds a number that names nobody: a user is more than 0, a chat is not 0", path.display())]
    Nobody {
        /// The file.
        path: PathBuf,
        /// The profile.
        profile: String,
        /// The list.
        list: &'static str,
    },
    /// A profile that is set up is configured otherwise, and nobody said that it may be replaced.
    #[error("{}: the profile {profile:?} is configured otherwise ({replaced}); say --replace to replace that", path.display())]
    WouldReplace {
        /// The file.
        path: PathBuf,
        /// The profile.
        profile: String,
        /// What would be replaced.
        replaced: Box<Replaced>,
    },
    /// A profile names a credential that is not there.
    #[error("{} has no credential {credential:?}, which the profile {profile:?} names", path.display())]
    NoCredential {
        /// The file.
        path: PathBuf,
        /// The profile.
        profile: String,
        /// The credential.
        credential: String,
    },
    /// The path of a token is not absolute.
    #[error("{}: the token file of {credential:?} has no absolute path", path.display())]
    TokenPath {
        /// The file that says so.
        path: PathBuf,
        /// The credential.
        credential: String,
    },
    /// The file of a token is empty, or holds something that is no token.
    #[error("{} holds no token: give it one line without blanks", path.display())]
    NoToken {
        /// The file of the token.
        path: PathBuf,
    },
    /// Two profiles have one token, so that each would take the other's updates.
    #[error("{}: the profiles {first:?} and {second:?} have the same token: one bot has one reader", path.display())]
    SharedToken {
        /// The file that names both.
        path: PathBuf,
        /// One profile.
        first: String,
        /// The other.
        second: String,
    },
}

impl ConfigError {
    /// The file or directory that is wrong.
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::NotPrivate { path, .. }
            | Self::NotAFile { path }
            | Self::NotADirectory { path }
            | Self::TooLarge { path, .. }
            | Self::Shape { path, .. }
            | Self::Schema { path, .. }
            | Self::Name { path, .. }
            | Self::NoChannel { path, .. }
            | Self::UnknownChannel { path, .. }
            | Self::Accept { path, .. }
            | Self::EmptyList { path, .. }
            | Self::NotNumeric { path, .. }
            | Self::Nobody { path, .. }
            | Self::WouldReplace { path, .. }
            | Self::NoCredential { path, .. }
            | Self::TokenPath { path, .. }
            | Self::NoToken { path }
            | Self::SharedToken { path, .. } => path,
        }
    }
}

/// The configuration as it was read: whole and checked.
#[derive(Debug, Clone, Default)]
pub struct Config {
    audiences: BTreeMap<String, Vec<ChannelId>>,
    profiles: BTreeMap<String, Profile>,
}

/// One Telegram profile.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The bot's token.
    pub token: Token,
    /// Who may answer.
    pub allowed_user_ids: Vec<String>,
    /// Where it is shown and may be answered, in the order in which it is sent.
    pub allowed_chat_ids: Vec<String>,
    /// By which name this host knows who may answer: the one under which that person asks for runs here, such as `command-line`.
    pub persons: BTreeMap<String, String>,
}

impl Profile {
    /// Whether this person may answer there. An empty list means nobody.
    pub fn allows(&self, user_id: &str, chat_id: &str) -> bool {
        self.allowed_user_ids
            .iter()
            .any(|allowed| allowed == user_id)
            && self
                .allowed_chat_ids
                .iter()
                .any(|allowed| allowed == chat_id)
    }
}

/// The directory of the configuration; none when no home is known or the named one is not absolute.
///
/// `HOLDPOINT_CONFIG_DIR`, else `holdpoint` in `XDG_CONFIG_HOME`, else `.config/holdpoint` in the home.
pub fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| {
        variable(name)
            .filter(|text| !text.is_empty())
            .map(PathBuf::from)
    };
    if let Some(named) = path(DIRECTORY_VARIABLE) {
        return named.is_absolute().then_some(named);
    }
    path("XDG_CONFIG_HOME")
        .filter(|base| base.is_absolute())
        .or_else(|| {
            path("HOME")
                .filter(|home| home.is_absolute())
                .map(|home| home.join(".config"))
        })
        .map(|base| base.join("holdpoint"))
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChannelsFile {
    schema: String,
    audiences: BTreeMap<String, AudienceEntry>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    telegram_profiles: BTreeMap<String, ProfileEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AudienceEntry {
    channels: Vec<String>,
    accept: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProfileEntry {
    credential: String,
    allowed_user_ids: Vec<String>,
    allowed_chat_ids: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    persons: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CredentialsFile {
    schema: String,
    telegram: BTreeMap<String, CredentialEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CredentialEntry {
    token_file: PathBuf,
}

impl Config {
    /// Reads the configuration. Without a file there is no external channel, and every audience is reached locally.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: the first thing that is wrong. Nothing is used of a configuration that is wrong anywhere.
    pub fn load(directory: &Path) -> Result<Self, ConfigError> {
        let path = directory.join(CHANNELS_FILE);
        let Some(channels) = channels_file(directory)? else {
            return Ok(Self::default());
        };
        channels.check(&path)?;
        let mut config = Self::default();
        for (name, entry) in &channels.audiences {
            let reached = entry
                .channels
                .iter()
                .map(|channel| ChannelId::from(channel.as_str()))
                .collect();
            config.audiences.insert(name.clone(), reached);
        }
        if channels.telegram_profiles.is_empty() {
            return Ok(config);
        }
        let path = directory.join(CREDENTIALS_FILE);
        let credentials = credentials_file(directory)?.unwrap_or_else(CredentialsFile::empty);
        for (name, entry) in channels.telegram_profiles {
            let Some(credential) = credentials.telegram.get(&entry.credential) else {
                return Err(ConfigError::NoCredential {
                    path,
                    profile: name,
                    credential: entry.credential,
                });
            };
            if !credential.token_file.is_absolute() {
                return Err(ConfigError::TokenPath {
                    path,
                    credential: entry.credential,
                });
            }
            let token = files::read_token(&credential.token_file)?;
            if let Some((first, _)) = config
                .profiles
                .iter()
                .find(|(_, other)| other.token == token)
            {
                return Err(ConfigError::SharedToken {
                    path,
                    first: first.clone(),
                    second: name,
                });
            }
            let mut chats = entry.allowed_chat_ids;
            chats.sort();
            chats.dedup();
            let profile = Profile {
                token,
                allowed_user_ids: entry.allowed_user_ids,
                allowed_chat_ids: chats,
                persons: entry.persons,
            };
            config.profiles.insert(name, profile);
        }
        Ok(config)
    }

    /// The channels of an audience; only the local one when it is not listed.
    pub fn channels_of(&self, audience: &str) -> Vec<ChannelId> {
        self.audiences
            .get(audience)
            .cloned()
            .unwrap_or_else(|| vec![ChannelId::local()])
    }

    /// Whether an audience is reached through a channel.
    pub fn reaches(&self, audience: &str, channel: &ChannelId) -> bool {
        match self.audiences.get(audience) {
            Some(channels) => channels.contains(channel),
            None => channel.as_str() == LOCAL,
        }
    }

    /// The audiences that are reached through a channel.
    pub fn audiences_of<'a>(&'a self, channel: &'a ChannelId) -> impl Iterator<Item = &'a str> {
        let reached = self
            .audiences
            .iter()
            .filter(move |(_, channels)| channels.contains(channel));
        reached.map(|(name, _)| name.as_str())
    }

    /// The audiences that are listed, with their channels.
    pub fn audiences(&self) -> impl Iterator<Item = (&str, &[ChannelId])> {
        self.audiences
            .iter()
            .map(|(name, channels)| (name.as_str(), channels.as_slice()))
    }

    /// The profiles, by name.
    pub fn profiles(&self) -> &BTreeMap<String, Profile> {
        &self.profiles
    }

    /// One profile.
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.profiles.get(name)
    }
}

fn channels_file(directory: &Path) -> Result<Option<ChannelsFile>, ConfigError> {
    files::check_directory(directory)?;
    let path = directory.join(CHANNELS_FILE);
    let file: Option<ChannelsFile> = files::read_json(&path, CHANNELS_SCHEMA)?;
    check_schema(
        &path,
        CHANNELS_SCHEMA,
        file.as_ref().map(|file| file.schema.as_str()),
    )?;
    Ok(file)
}

fn credentials_file(directory: &Path) -> Result<Option<CredentialsFile>, ConfigError> {
    let path = directory.join(CREDENTIALS_FILE);
    let file: Option<CredentialsFile> = files::read_json(&path, CREDENTIALS_SCHEMA)?;
    check_schema(
        &path,
        CREDENTIALS_SCHEMA,
        file.as_ref().map(|file| file.schema.as_str()),
    )?;
    if let Some(file) = &file {
        file.telegram
            .keys()
            .try_for_each(|name| check_name(&path, "the credential", name))?;
    }
    Ok(file)
}

fn check_schema(path: &Path, schema: &'static str, found: Option<&str>) -> Result<(), ConfigError> {
    match found {
        Some(found) if found != schema => Err(ConfigError::Schema {
            path: path.to_owned(),
            schema,
        }),
        _ => Ok(()),
    }
}

fn check_name(path: &Path, what: &'static str, name: &str) -> Result<(), ConfigError> {
    if is_name(name) {
        return Ok(());
    }
    Err(ConfigError::Name {
        path: path.to_owned(),
        what,
        name: name.to_owned(),
    })
}

impl ChannelsFile {
    fn empty() -> Self {
        Self {
            schema: CHANNELS_SCHEMA.to_owned(),
            audiences: BTreeMap::new(),
            telegram_profiles: BTreeMap::new(),
        }
    }

    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        for (name, profile) in &self.telegram_profiles {
            check_name(path, "the profile", name)?;
            check_name(path, "the credential", &profile.credential)?;
            check_ids(path, name, USERS, &profile.allowed_user_ids)?;
            check_ids(path, name, CHATS, &profile.allowed_chat_ids)?;
            if !profile.persons.is_empty() {
                let known: Vec<String> = profile.persons.keys().cloned().collect();
                check_ids(path, name, "persons", &known)?;
            }
        }
        for (name, audience) in &self.audiences {
            check_name(path, "the audience", name)?;
            if audience.accept != FIRST_VALID_ANSWER {
                return Err(ConfigError::Accept {
                    path: path.to_owned(),
                    audience: name.clone(),
                });
            }
            if audience.channels.is_empty() {
                return Err(ConfigError::NoChannel {
                    path: path.to_owned(),
                    audience: name.clone(),
                });
            }
            let unknown = audience
                .channels
                .iter()
                .find(|channel| !self.is_configured(channel));
            if let Some(channel) = unknown {
                return Err(ConfigError::UnknownChannel {
                    path: path.to_owned(),
                    audience: name.clone(),
                    channel: channel.clone(),
                });
            }
        }
        Ok(())
    }

    fn is_configured(&self, channel: &str) -> bool {
        let id = ChannelId::from(channel);
        channel == LOCAL
            || id
                .profile()
                .is_some_and(|profile| self.telegram_profiles.contains_key(profile))
    }
}

impl CredentialsFile {
    fn empty() -> Self {
        Self {
            schema: CREDENTIALS_SCHEMA.to_owned(),
            telegram: BTreeMap::new(),
        }
    }
}

fn check_ids(
    path: &Path,
    profile: &str,
    list: &'static str,
    ids: &[String],
) -> Result<(), ConfigError> {
    if ids.is_empty() {
        return Err(ConfigError::EmptyList {
            path: path.to_owned(),
            profile: profile.to_owned(),
            list,
        });
    }
    if !ids.iter().all(|id| is_numeric(id)) {
        return Err(ConfigError::NotNumeric {
            path: path.to_owned(),
            profile: profile.to_owned(),
            list,
        });
    }
    // Groups are negative, people never are.
    let is_nobody = |id: &String| id.as_str() == "0" || (list != CHATS && id.starts_with('-'));
    if ids.iter().any(is_nobody) {
        return Err(ConfigError::Nobody {
            path: path.to_owned(),
            profile: profile.to_owned(),
            list,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
