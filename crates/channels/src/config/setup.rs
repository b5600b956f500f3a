//! Setting a profile up: what there is stays, and the profile, its credential and its place in an audience are added.

use std::path::{Path, PathBuf};

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
    /// The profile; what it was before is replaced.
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
                    first: name.clone(),
                    second: self.profile.clone(),
                });
            }
        }
        Ok(token)
    }

    /// Writes the configuration with the profile in it.
    ///
    /// The credential is written first: a crash in between leaves one that nobody names.
    ///
    /// # Errors
    ///
    /// [`ConfigError`].
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
        channels.check(&directory.join(CHANNELS_FILE))?;
        Ok((channels, credentials))
    }
}
