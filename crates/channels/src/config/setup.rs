//! Setting a profile up: what there is stays, and the profile, its credential and its place in an audience are added.
//!
//! A profile that is configured otherwise is replaced only when that was said: whoever could answer would otherwise lose it unseen.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{
    AudienceEntry, CHANNELS_FILE, CREDENTIALS_FILE, ChannelsFile, ConfigError, CredentialEntry,
    CredentialsFile, FIRST_VALID_ANSWER, ProfileEntry, channels_file, check_name, credentials_file,
    files,
};
use crate::identity::{LOCAL, TELEGRAM};
use crate::protocol::Token;

/// The wish for one profile. It has the path of a token and never a token, which would be seen in a history of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// The profile.
    pub profile: String,
    /// The name of its credential.
    pub credential: String,
    /// Where the token is, as an absolute path.
    pub token_file: PathBuf,
    /// Who may answer.
    pub allowed_user_ids: Vec<String>,
    /// Where it is shown.
    pub allowed_chat_ids: Vec<String>,
    /// The audience that is reached through it from now on.
    pub audience: String,
    /// What the profile was before may be replaced.
    pub replace: bool,
}

/// How a list changes. Only counts: who is in it is private.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Those that stay.
    pub kept: usize,
    /// Those that are no longer in it.
    pub gone: usize,
    /// Those that come in.
    pub new: usize,
}

impl Counts {
    fn of(before: &[String], after: &[String]) -> Self {
        let (before, after): (BTreeSet<_>, BTreeSet<_>) =
            (before.iter().collect(), after.iter().collect());
        Self {
            kept: before.intersection(&after).count(),
            gone: before.difference(&after).count(),
            new: after.difference(&before).count(),
        }
    }

    fn is_change(self) -> bool {
        0 < self.gone + self.new
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} kept, {} gone, {} new",
            self.kept, self.gone, self.new
        )
    }
}

/// What a setup replaces of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Replaced {
    /// Who may answer.
    pub users: Counts,
    /// Where it is shown.
    pub chats: Counts,
    /// Its token is in another file.
    pub token: bool,
}

impl fmt::Display for Replaced {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        for (what, counts) in [("users", self.users), ("chats", self.chats)] {
            if counts.is_change() {
                words.push(format!("{what}: {counts}"));
            }
        }
        if self.token {
            words.push("another token file".to_owned());
        }
        formatter.write_str(&words.join("; "))
    }
}

impl Setup {
    /// Checks the wish and reads the token, so that it can be tried before anything is written.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], also about what is configured already: a wrong file is not written over. [`ConfigError::SharedToken`] when another
    /// profile has this token, since then no configuration could be loaded any more.
    pub fn token(&self, directory: &Path) -> Result<Token, ConfigError> {
        let (channels, credentials) = self.merged(directory)?;
        let token = files::read_token(&self.token_file)?;
        for (name, other) in &channels.telegram_profiles {
            // A token of another profile that can't be read now is no reason not to set this one up.
            let read = credentials
                .telegram
                .get(&other.credential)
                .and_then(|credential| files::read_token(&credential.token_file).ok());
            if *name != self.profile && read.as_ref() == Some(&token) {
                return Err(ConfigError::SharedToken {
                    path: directory.join(CREDENTIALS_FILE),
                    first: name.clone(),
                    second: self.profile.clone(),
                });
            }
        }
        Ok(token)
    }

    /// What of the configured profile would be replaced; none when it is new or stays as it is.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] about what is configured already.
    pub fn replaces(&self, directory: &Path) -> Result<Option<Replaced>, ConfigError> {
        let channels = channels_file(directory)?.unwrap_or_else(ChannelsFile::empty);
        let credentials = credentials_file(directory)?.unwrap_or_else(CredentialsFile::empty);
        Ok(self.replaced(&channels, &credentials))
    }

    fn replaced(&self, channels: &ChannelsFile, credentials: &CredentialsFile) -> Option<Replaced> {
        let token_file = |credential: &str| {
            let found = credentials.telegram.get(credential);
            found.map(|entry| entry.token_file.as_path())
        };
        let before = channels.telegram_profiles.get(&self.profile);
        // A credential may be another profile's too.
        let is_other = |known: Option<&Path>| known.is_some_and(|known| known != self.token_file);
        let replaced = Replaced {
            users: before.map_or_else(Counts::default, |before| {
                Counts::of(&before.allowed_user_ids, &self.allowed_user_ids)
            }),
            chats: before.map_or_else(Counts::default, |before| {
                Counts::of(&before.allowed_chat_ids, &self.allowed_chat_ids)
            }),
            token: is_other(token_file(&self.credential))
                || is_other(before.and_then(|before| token_file(&before.credential))),
        };
        (replaced.users.is_change() || replaced.chats.is_change() || replaced.token)
            .then_some(replaced)
    }

    /// Writes the configuration with the profile in it.
    ///
    /// The credential is written first: a crash in between leaves one that nobody names.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]; [`ConfigError::WouldReplace`] when the profile is configured otherwise and may not be replaced.
    pub fn write(&self, directory: &Path) -> Result<(), ConfigError> {
        let (channels, credentials) = self.merged(directory)?;
        files::create_directory(directory)?;
        files::write_json(&directory.join(CREDENTIALS_FILE), &credentials)?;
        files::write_json(&directory.join(CHANNELS_FILE), &channels)
    }

    fn merged(&self, directory: &Path) -> Result<(ChannelsFile, CredentialsFile), ConfigError> {
        let path = directory.join(CREDENTIALS_FILE);
        check_name(&path, "the credential", &self.credential)?;
        if !self.token_file.is_absolute() {
            return Err(ConfigError::TokenPath {
                path,
                credential: self.credential.clone(),
            });
        }
        let mut channels = channels_file(directory)?.unwrap_or_else(ChannelsFile::empty);
        let mut credentials = credentials_file(directory)?.unwrap_or_else(CredentialsFile::empty);
        // Who these people are is no matter of a set-up, and is not forgotten by one.
        let before = channels.telegram_profiles.get(&self.profile);
        let replaced = self.replaced(&channels, &credentials);
        let profile = ProfileEntry {
            persons: before
                .map(|entry| entry.persons.clone())
                .unwrap_or_default(),
            credential: self.credential.clone(),
            allowed_user_ids: self.allowed_user_ids.clone(),
            allowed_chat_ids: self.allowed_chat_ids.clone(),
        };
        channels
            .telegram_profiles
            .insert(self.profile.clone(), profile);
        let audience = channels
            .audiences
            .entry(self.audience.clone())
            .or_insert_with(|| AudienceEntry {
                channels: vec![LOCAL.to_owned()],
                accept: FIRST_VALID_ANSWER.to_owned(),
            });
        let channel = format!("{TELEGRAM}:{}", self.profile);
        if !audience.channels.contains(&channel) {
            audience.channels.push(channel);
        }
        credentials.telegram.insert(
            self.credential.clone(),
            CredentialEntry {
                token_file: self.token_file.clone(),
            },
        );
        let path = directory.join(CHANNELS_FILE);
        channels.check(&path)?;
        if let Some(replaced) = replaced.filter(|_| !self.replace) {
            return Err(ConfigError::WouldReplace {
                path,
                profile: self.profile.clone(),
                replaced: Box::new(replaced),
            });
        }
        Ok((channels, credentials))
    }
}
