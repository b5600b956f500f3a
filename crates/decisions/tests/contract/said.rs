//! What a resolving command came to, in a few words: for models, races and their tables.

use holdpoint_decisions::model::{Adopted, Conflict, Judged, Rejection, Resolution};

/// The few words.
pub(crate) fn said(judged: &Judged) -> String {
    let by = |resolution: &Resolution| resolution.provenance().to_string();
    match judged {
        Judged::Accepted { resolution } => format!("won {}", by(resolution)),
        Judged::Adopted { earlier } => match earlier {
            Adopted::Won { resolution } => format!("adopted won {}", by(resolution)),
            Adopted::AlreadyResolved { resolution } => format!("adopted lost {}", by(resolution)),
            Adopted::Stale => "adopted stale".to_owned(),
            Adopted::Rejected { code } => format!("adopted {code}"),
        },
        Judged::Conflict { conflict } => match conflict {
            Conflict::Winner { resolution } => format!("conflict {}", by(resolution)),
            Conflict::Key => "conflict key".to_owned(),
            Conflict::Paused => "conflict paused".to_owned(),
        },
        Judged::Rejected { reason } => match reason {
            Rejection::Stale => "stale".to_owned(),
            Rejection::Invalid { code } => code.to_string(),
            Rejection::Cancelled { resolution } => format!("rejected {}", by(resolution)),
        },
        Judged::NotDue { .. } => "not due".to_owned(),
        Judged::NotFound => "not found".to_owned(),
    }
}
