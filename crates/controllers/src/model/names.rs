//! The names of the domain: their forms and nothing else.

use std::fmt;
use std::path::{Component, Path};

use holdpoint_state::Resource;
use holdpoint_state::sql::{
    FromSql, FromSqlError, FromSqlResult, SqlError, ToSql, ToSqlOutput, ValueRef,
};

use super::RESOURCE_TYPE;
use super::invalid::{Invalid, NAME_CHARS_MAX};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:path;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Checks the form of a text.
            ///
            /// # Errors
            ///
            /// [`Invalid::Name`] says which form it must have.
            pub fn new(text: impl Into<String>) -> Result<Self, Invalid> {
                let text = text.into();
                if $check(&text) {
                    Ok(Self(text))
                } else {
                    Err(Invalid::Name { what: $what, rule: $rule })
                }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{:?}", self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl std::str::FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Invalid;

            fn try_from(text: &str) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;

            fn try_from(text: String) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> Result<ToSqlOutput<'_>, SqlError> {
                Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0.as_bytes())))
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                Self::new(value.as_str()?).map_err(|error| FromSqlError::Other(error.into()))
            }
        }
    )*};
}

names! {
    /// Names one managed resource for ever: a UUID that is never used again, not even when the same key is made anew. It is the name of
    /// the kernel's resource.
    Uid, "uid", "a UUID in lower-case hex with dashes", is_uid;
    /// The directory of a project: absolute and normalised.
    ProjectPath, "project path", "absolute, without `.`, `..`, doubled or trailing slashes", is_project;
    /// Names a controller.
    ControllerName, "controller name", "a lower-case letter and then lower-case letters, digits and dashes, 512 characters at most",
        is_controller;
    /// Names a resource within its project and controller.
    Key, "resource key", "1 to 512 characters without NUL, not all of them blank", is_key;
    /// A named hold on the deletion of a resource.
    FinalizerName, "finalizer", "1 to 512 characters without NUL, not all of them blank", is_key;
    /// Names one child run that a resource asks for.
    RequestKey, "request key", "1 to 512 characters without NUL, not all of them blank", is_key;
    /// Names one intended act of a resource on the outside world.
    EffectKey, "key of an effect", "1 to 512 characters without NUL, not all of them blank", is_key;
}

impl Uid {
    /// A uid that nobody has.
    pub(crate) fn random() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }

    /// The resource of the kernel.
    pub fn resource(&self) -> Resource {
        Resource::new(RESOURCE_TYPE, self.as_str())
    }
}

fn is_uid(text: &str) -> bool {
    text.len() == 36
        && text.char_indices().all(|(at, c)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => matches!(c, '0'..='9' | 'a'..='f'),
        })
}

fn is_project(text: &str) -> bool {
    let parts = Path::new(text).components();
    let normal: std::path::PathBuf = parts.clone().collect();
    text.starts_with('/')
        && !text.contains('\0')
        && parts
            .clone()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        && normal.as_os_str() == text
}

fn is_controller(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.len() <= NAME_CHARS_MAX
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// A NUL can't be said at a command line, and SQLite takes it for the end of a text.
fn is_key(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains('\0') && text.chars().count() <= NAME_CHARS_MAX
}

/// Names a managed resource as people do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// Its project.
    pub project: ProjectPath,
    /// Its controller.
    pub controller: ControllerName,
    /// Its key.
    pub key: Key,
}

impl Target {
    /// A target.
    pub fn new(project: ProjectPath, controller: ControllerName, key: Key) -> Self {
        Self {
            project,
            controller,
            key,
        }
    }

    /// A target of texts that are checked here.
    ///
    /// # Errors
    ///
    /// [`Invalid::Name`].
    pub fn parse(project: &str, controller: &str, key: &str) -> Result<Self, Invalid> {
        Ok(Self::new(
            ProjectPath::new(project)?,
            ControllerName::new(controller)?,
            Key::new(key)?,
        ))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.controller, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_forms() {
        let long = "a".repeat(513);
        for (text, project, controller, key) in [
            ("/", true, false, true),
            ("/srv/app", true, false, true),
            ("/srv/app/", false, false, true),
            ("/srv//app", false, false, true),
            ("/srv/./app", false, false, true),
            ("/srv/../app", false, false, true),
            ("srv", false, true, true),
            ("tree-2", false, true, true),
            ("2-tree", false, false, true),
            ("Tree", false, false, true),
            ("", false, false, false),
            (" ", false, false, false),
            ("a\0b", false, false, false),
            (&long[..512], false, true, true),
            (&long, false, false, false),
        ] {
            let found = (
                ProjectPath::new(text).is_ok(),
                ControllerName::new(text).is_ok(),
                Key::new(text).is_ok(),
            );
            assert_eq!(found, (project, controller, key), "{text:?}");
        }
        assert!(Key::new("ä".repeat(512)).is_ok());
        assert!(Uid::new(Uid::random().as_str()).is_ok());
        assert!(Uid::new("0198c0de-0000-7000-8000-00000000000G").is_err());
    }
}
