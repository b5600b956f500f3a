//! Updates: keyed, replaceable progress that an attempt publishes while it goes on.
//!
//! [`Update`] is one value that passed every check of its form, and a copy: what its maker does with the data later changes nothing.
//! [`Publisher`] is the way from a node to whoever stores it, [`progress`] the convention of the type `progress`. Not here: whether
//! an attempt may publish now ([`commands::publish`](crate::commands::publish())), and any knowledge of the database.

pub mod estimate;
mod instant;
mod job;
pub mod progress;

use std::fmt;
use std::sync::Arc;

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{Payload, StateError};
use serde::Serialize;
use serde_json::Value;

pub use job::{JOB_LIMIT_BYTES, JOB_SCHEMA, JobError, JobSnapshot};
pub use progress::{OVERALL, Progress, ProgressError, ProgressStatus};

use crate::definition::NodeError;

/// The most bytes that the data of an update has as canonical JSON.
pub const DATA_LIMIT_BYTES: usize = 64 * 1024;
/// How many (type, key) pairs an attempt has values for at most.
pub const PAIR_LIMIT: u32 = 1_024;
/// How many updates an attempt may publish at once after a rest.
pub const BURST: i64 = 100;
/// How many updates an attempt may publish in a second, on and on.
pub const RATE_PER_SECOND: i64 = 20;

/// How long one update takes of the bucket, in milliseconds.
const STEP_MS: i64 = 1_000 / RATE_PER_SECOND;
/// How long an empty bucket takes to be full again, in milliseconds.
const FULL_MS: i64 = BURST * STEP_MS;

/// Why a value is no update.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The type has not the form of one.
    #[error(
        "the type of an update is a small letter, then small letters, digits, `.` and `-`, at most 64 in all; not {given:?}"
    )]
    Type {
        /// What was given.
        given: String,
    },
    /// The key has not the form of one.
    #[error(
        "the key of an update is a letter or digit, then letters, digits and `._:/-`, at most 128 in all; not {given:?}"
    )]
    Key {
        /// What was given.
        given: String,
    },
    /// The data is no object.
    #[error("the data of an update must be an object")]
    NoObject,
    /// The data is too large.
    #[error("the data of an update has {size_bytes} bytes; {DATA_LIMIT_BYTES} are allowed")]
    TooLarge {
        /// Its size as canonical JSON.
        size_bytes: usize,
    },
    /// The caller's own key is empty or too long.
    #[error("the request id of an update must have 1 to 512 characters")]
    RequestId,
    /// Data of the type `progress` does not follow its convention.
    #[error("the data of a `progress` update: {0}")]
    Progress(#[from] ProgressError),
    /// The data has no canonical form.
    #[error(transparent)]
    Data(#[from] StateError),
}

/// One update: a full replacement of the value that its type and key had before in the same attempt.
///
/// ```
/// use holdpoint_workflows::updates::Update;
/// use serde_json::json;
///
/// assert!(Update::new("build.log", "stage/compile", &json!({ "lines": 12 })).is_ok());
/// assert!(Update::new("Build", "x", &json!({})).is_err());
/// assert!(Update::new("build", "x", &json!([1])).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    kind: String,
    key: String,
    data: Payload,
    request_id: Option<String>,
}

impl Update {
    /// Checks and copies an update.
    ///
    /// # Errors
    ///
    /// [`UpdateError`]: type or key have another form, the data is no object or too large; with the type `progress` also when the
    /// data does not follow [its convention](progress).
    pub fn new<T: Serialize + ?Sized>(
        update_type: &str,
        key: &str,
        data: &T,
    ) -> Result<Self, UpdateError> {
        if !is_word(
            update_type,
            64,
            |c| c.is_ascii_lowercase(),
            |c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-'),
        ) {
            let given = update_type.to_owned();
            return Err(UpdateError::Type { given });
        }
        if !is_word(
            key,
            128,
            |c| c.is_ascii_alphanumeric(),
            |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '/' | '-'),
        ) {
            let given = key.to_owned();
            return Err(UpdateError::Key { given });
        }
        let payload = Payload::json(data)?;
        let size_bytes = payload.as_bytes().len();
        if DATA_LIMIT_BYTES < size_bytes {
            return Err(UpdateError::TooLarge { size_bytes });
        }
        if payload.as_bytes().first() != Some(&b'{') {
            return Err(UpdateError::NoObject);
        }
        if update_type == progress::TYPE {
            Progress::read(payload.as_bytes())?;
        }
        Ok(Self {
            kind: update_type.to_owned(),
            key: key.to_owned(),
            data: payload,
            request_id: None,
        })
    }

    /// Sets the caller's own key, such as the id of a tool call: a repeat with it gets the first receipt and adds nothing.
    ///
    /// # Errors
    ///
    /// [`UpdateError::RequestId`].
    pub fn calling(mut self, request_id: impl Into<String>) -> Result<Self, UpdateError> {
        let request_id = request_id.into();
        if request_id.is_empty() || 512 < request_id.chars().count() {
            return Err(UpdateError::RequestId);
        }
        self.request_id = Some(request_id);
        Ok(self)
    }

    /// Reads `{type, key, data}`, which is how a line of a command says it.
    ///
    /// # Errors
    ///
    /// Another shape, or as [`Update::new`].
    pub fn from_value(value: &Value) -> Result<Self, NodeError> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Said {
            r#type: String,
            key: String,
            data: Value,
        }
        let said: Said =
            serde::Deserialize::deserialize(value).map_err(|error: serde_json::Error| {
                refused(format!("an update is {{type, key, data}}: {error}"))
            })?;
        Self::new(&said.r#type, &said.key, &said.data).map_err(|error| refused(error.to_string()))
    }

    /// The type.
    pub fn update_type(&self) -> &str {
        &self.kind
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The data as it is stored.
    pub fn data(&self) -> &Payload {
        &self.data
    }

    /// The caller's own key.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }
}

/// The error of a node whose update was refused.
pub(crate) fn refused(problem: impl Into<String>) -> NodeError {
    NodeError::named("UpdateRefused", problem)
}

fn is_word(
    text: &str,
    most: usize,
    first: impl Fn(char) -> bool,
    rest: impl Fn(char) -> bool,
) -> bool {
    text.len() <= most && text.starts_with(first) && text.chars().all(rest)
}

/// The token bucket of an attempt after one more update at `now`: when it will be full again. `full_at` is that of the update before,
/// so that rows alone say what the bucket holds, whoever published them.
///
/// A wall clock that was set back leaves at worst an empty bucket, no debt.
///
/// # Errors
///
/// How many milliseconds to wait for the next token.
pub(crate) fn take_token(full_at: Option<UnixMillis>, now: UnixMillis) -> Result<UnixMillis, i64> {
    let missing = full_at
        .map_or(0, |full_at| full_at.since(now))
        .clamp(0, FULL_MS);
    match missing + STEP_MS {
        missing if missing <= FULL_MS => Ok(now.plus(missing)),
        missing => Err(missing - FULL_MS),
    }
}

type Publish = Arc<dyn Fn(Update) -> Result<(), NodeError> + Send + Sync>;

/// The way from a node to whoever stores its updates. Clones lead to the same place.
#[derive(Clone, Default)]
pub struct Publisher(Option<Publish>);

impl Publisher {
    /// A publisher that hands updates to a function, which returns once the update is durable.
    pub fn new(publish: impl Fn(Update) -> Result<(), NodeError> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(publish)))
    }

    /// Publishes.
    ///
    /// # Errors
    ///
    /// The update was refused; nothing of it is stored. The default publisher refuses all: what makes titles, time budgets and
    /// routes is no attempt.
    pub fn publish(&self, update: Update) -> Result<(), NodeError> {
        match &self.0 {
            Some(publish) => publish(update),
            None => Err(refused(
                "only a node that is being executed can publish an update",
            )),
        }
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Publisher")
            .field(&self.0.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn forms_of_type_key_and_data() {
        let long = |c: &str, n: usize| c.repeat(n);
        for (good, most) in [("a", 64), ("progress2.x-y", 64)] {
            assert!(Update::new(good, "k", &json!({})).is_ok(), "{good} {most}");
        }
        assert!(Update::new(&long("a", 64), &long("K", 128), &json!({})).is_ok());
        for bad in [
            "",
            "A",
            "1a",
            "-a",
            ".a",
            "a_b",
            "a/b",
            "ä",
            "aä",
            &long("a", 65),
        ] {
            assert!(
                matches!(
                    Update::new(bad, "k", &json!({})),
                    Err(UpdateError::Type { .. })
                ),
                "{bad}"
            );
        }
        for good in ["a", "9", "A.b_c:d/e-f"] {
            assert!(Update::new("t", good, &json!({})).is_ok(), "{good}");
        }
        for bad in ["", ".a", "-a", "/a", "_a", "a b", "ä", &long("a", 129)] {
            assert!(
                matches!(
                    Update::new("t", bad, &json!({})),
                    Err(UpdateError::Key { .. })
                ),
                "{bad}"
            );
        }
        for bad in [json!(null), json!([]), json!("{}"), json!(1)] {
            assert!(
                matches!(Update::new("t", "k", &bad), Err(UpdateError::NoObject)),
                "{bad}"
            );
        }
        // `{"t":""}` has 8 bytes.
        let sized = |bytes: usize| json!({ "t": "x".repeat(bytes - 8) });
        assert!(Update::new("t", "k", &sized(DATA_LIMIT_BYTES)).is_ok());
        assert!(matches!(
            Update::new("t", "k", &sized(DATA_LIMIT_BYTES + 1)),
            Err(UpdateError::TooLarge { size_bytes }) if size_bytes == DATA_LIMIT_BYTES + 1
        ));
        // Only the type `progress` has a convention.
        assert!(Update::new("progress", "overall", &json!({ "status": "running" })).is_err());
        assert!(Update::new("progress.x", "overall", &json!({ "status": "running" })).is_ok());
    }

    #[test]
    fn the_bucket_holds_a_burst_and_fills_at_its_rate() {
        let publish = |full_at: &mut Option<UnixMillis>, now: i64| match take_token(
            *full_at,
            UnixMillis(now),
        ) {
            Ok(next) => {
                *full_at = Some(next);
                Ok(())
            }
            Err(wait) => Err(wait),
        };
        let mut full_at = None;
        for nth in 0..BURST {
            assert_eq!(publish(&mut full_at, 1_000), Ok(()), "{nth}");
        }
        assert_eq!(publish(&mut full_at, 1_000), Err(50));
        assert_eq!(publish(&mut full_at, 1_049), Err(1));
        assert_eq!(publish(&mut full_at, 1_050), Ok(()));
        assert_eq!(publish(&mut full_at, 1_050), Err(50));
        // A second gives twenty, an hour no more than a burst.
        let taken = |full_at: &mut Option<UnixMillis>, now| {
            (0..1_000).filter(|_| publish(full_at, now).is_ok()).count()
        };
        assert_eq!(taken(&mut full_at, 2_050), 20);
        assert_eq!(taken(&mut full_at, 3_600_000), 100);
        // An hour back: nothing for the moment, and as before one token later.
        assert_eq!(publish(&mut full_at, 0), Err(50));
        assert_eq!(publish(&mut full_at, 50), Err(50));
    }
}
