//! What is to be done next: a pure function of what is wanted, what is there, and what the resource wrote before.
//!
//! One step at a time, in an order that always works: what is in the way goes first. Not here: looking at files (`place`), the
//! passes (`reconcile`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::spec::{Drift, Existing, Prune};

/// What is there under a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing.
    Absent,
    /// An ordinary file with this SHA-256.
    File(String),
    /// A file that is too large to be one of ours.
    Large,
    /// A directory, a link, a pipe: nothing that is touched.
    Other,
}

/// The content that a declared file should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It is known, and this is its SHA-256.
    Content(String),
    /// A run makes it.
    Waiting,
    /// The run that should make it gave none.
    Failed(String),
}

/// One act on the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "step"
)]
pub(crate) enum Step {
    /// Makes the directory the resource's own.
    Claim,
    /// Writes a file.
    Write {
        /// Its path.
        path: String,
        /// SHA-256 of the content.
        sha256: String,
        /// SHA-256 of what is overwritten; none when nothing may be there.
        #[serde(skip_serializing_if = "Option::is_none")]
        before: Option<String>,
    },
    /// Removes a file that is as the resource wrote it.
    Remove {
        /// Its path.
        path: String,
        /// SHA-256 of what is removed.
        sha256: String,
    },
    /// Gives the directory back.
    Release,
}

/// Why a file is not as it should be, and nothing is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Somebody else's file has the path.
    Occupied,
    /// Something that is no ordinary file has the path.
    NotAFile,
    /// Somebody changed it, and that is only reported.
    Drifted,
    /// Its run gave no content.
    Failed(String),
}

/// What the declared files come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What is to be done next; nothing when all that can be done is done.
    pub(crate) step: Option<Step>,
    /// Files that are not as they should be, for which nothing is done.
    pub(crate) blocked: Vec<(String, Blocked)>,
    /// Files whose runs go on.
    pub(crate) waiting: Vec<String>,
    /// Files that stay although the resource wrote them: somebody changed them since, or nothing is pruned.
    pub(crate) kept: Vec<String>,
    /// How many declared files are as they should be.
    pub(crate) right: usize,
}

/// The files that a resource wrote, with the SHA-256 of each.
pub(crate) type Managed = BTreeMap<String, String>;

/// What decides about declared files.
#[derive(Debug)]
pub(crate) struct Declared<'a> {
    pub(crate) wanted: &'a BTreeMap<String, Wanted>,
    pub(crate) existing: Existing,
    pub(crate) drift: Drift,
    pub(crate) prune: Prune,
    /// What else is in the directory, when everything else is to go.
    pub(crate) others: &'a BTreeMap<String, Seen>,
}

/// The next step towards the declared files. What `managed` says is brought up to what is seen: files that are gone are forgotten, and
/// files that became the resource's own without an act are taken in.
pub(crate) fn converge(
    declared: &Declared<'_>,
    managed: &mut Managed,
    is_claimed: bool,
    seen: impl Fn(&str) -> Seen,
) -> Plan {
    let mut plan = Plan::default();
    if !is_claimed {
        plan.step = Some(Step::Claim);
    }
    // Removing comes first: a file may be in the way of a directory.
    let gone: Managed = managed
        .iter()
        .filter(|(path, _)| !declared.wanted.contains_key(*path))
        .map(|(path, sha256)| (path.clone(), sha256.clone()))
        .collect();
    prune(gone, declared.prune, managed, &mut plan, &seen);
    for (path, there) in declared.others {
        match there {
            Seen::File(sha256) => {
                plan.step.get_or_insert(Step::Remove {
                    path: path.clone(),
                    sha256: sha256.clone(),
                });
            }
            Seen::Large | Seen::Other => plan.blocked.push((path.clone(), Blocked::NotAFile)),
            Seen::Absent => {}
        }
    }
    for (path, wanted) in declared.wanted {
        let sha256 = match wanted {
            Wanted::Content(sha256) => sha256,
            Wanted::Waiting => {
                plan.waiting.push(path.clone());
                continue;
            }
            Wanted::Failed(why) => {
                plan.blocked
                    .push((path.clone(), Blocked::Failed(why.clone())));
                continue;
            }
        };
        let ours = managed.get(path);
        let is_replaced = declared.existing == Existing::Replace;
        let may_be = match (seen(path), ours) {
            (Seen::Absent, _) => Ok(None),
            (Seen::File(there), ours) if there == *sha256 => {
                if ours.is_some() || is_replaced {
                    managed.insert(path.clone(), there);
                }
                plan.right += 1;
                continue;
            }
            (Seen::File(there), Some(ours)) if there == *ours => Ok(Some(there)),
            (Seen::File(_) | Seen::Large, Some(_)) if declared.drift == Drift::Report => {
                Err(Blocked::Drifted)
            }
            (Seen::File(there), Some(_)) => Ok(Some(there)),
            (Seen::File(there), None) if is_replaced => Ok(Some(there)),
            (Seen::File(_) | Seen::Large, None) => Err(Blocked::Occupied),
            // What is not read can't be compared, so that it is not overwritten either.
            (Seen::Large, Some(_)) | (Seen::Other, _) => Err(Blocked::NotAFile),
        };
        match may_be {
            Ok(before) => {
                plan.step.get_or_insert(Step::Write {
                    path: path.clone(),
                    sha256: sha256.clone(),
                    before,
                });
            }
            Err(why) => plan.blocked.push((path.clone(), why)),
        }
    }
    plan
}

/// The next step of leaving a directory: nothing of the resource stays in it, but what somebody changed.
pub(crate) fn leave(
    policy: Prune,
    managed: &mut Managed,
    is_claimed: bool,
    seen: impl Fn(&str) -> Seen,
) -> Plan {
    let mut plan = Plan::default();
    prune(managed.clone(), policy, managed, &mut plan, &seen);
    if is_claimed {
        plan.step.get_or_insert(Step::Release);
    }
    plan
}

/// Removes files that are as the resource wrote them; the others are no longer its own.
fn prune(
    gone: Managed,
    policy: Prune,
    managed: &mut Managed,
    plan: &mut Plan,
    seen: impl Fn(&str) -> Seen,
) {
    for (path, sha256) in gone {
        match (seen(&path), policy) {
            (Seen::File(there), Prune::Managed | Prune::Everything) if there == sha256 => {
                plan.step.get_or_insert(Step::Remove { path, sha256 });
            }
            (Seen::Absent, _) => drop(managed.remove(&path)),
            (Seen::File(_) | Seen::Large | Seen::Other, _) => {
                managed.remove(&path);
                plan.kept.push(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn step(plan: &Plan) -> String {
        match &plan.step {
            None => "nothing".to_owned(),
            Some(Step::Claim) => "claim".to_owned(),
            Some(Step::Release) => "release".to_owned(),
            Some(Step::Write {
                path,
                sha256,
                before: None,
            }) => format!("write {path}={sha256}"),
            Some(Step::Write {
                path,
                sha256,
                before: Some(before),
            }) => format!("write {path}={sha256} over {before}"),
            Some(Step::Remove { path, sha256 }) => format!("remove {path}={sha256}"),
        }
    }

    /// Every (there, ours, policy) of one declared file whose content is `new`.
    #[test]
    fn one_declared_file() {
        let wanted = BTreeMap::from([("f".to_owned(), Wanted::Content("new".to_owned()))]);
        let file = |text: &str| Seen::File(text.to_owned());
        let mut table = String::new();
        for there in [
            Seen::Absent,
            file("new"),
            file("old"),
            file("other"),
            Seen::Large,
            Seen::Other,
        ] {
            for ours in [None, Some("old")] {
                for (existing, drift) in [
                    (Existing::Keep, Drift::Repair),
                    (Existing::Keep, Drift::Report),
                    (Existing::Replace, Drift::Repair),
                ] {
                    let declared = Declared {
                        wanted: &wanted,
                        existing,
                        drift,
                        prune: Prune::Managed,
                        others: &BTreeMap::new(),
                    };
                    let mut managed: Managed = ours
                        .map(|ours| ("f".to_owned(), ours.to_owned()))
                        .into_iter()
                        .collect();
                    let plan = converge(&declared, &mut managed, true, |_| there.clone());
                    let after = managed.get("f").map_or("-", String::as_str);
                    let blocked: Vec<_> = plan
                        .blocked
                        .iter()
                        .map(|(_, why)| format!("{why:?}"))
                        .collect();
                    let _ = writeln!(
                        table,
                        "{:<14} ours {:<4} {existing:?}/{drift:?}: {} {}(then ours {after}, right {})",
                        format!("{there:?}"),
                        ours.unwrap_or("-"),
                        step(&plan),
                        blocked.join(""),
                        plan.right
                    );
                }
            }
        }
        insta::assert_snapshot!(table, @r#"
        Absent         ours -    Keep/Repair: write f=new (then ours -, right 0)
        Absent         ours -    Keep/Report: write f=new (then ours -, right 0)
        Absent         ours -    Replace/Repair: write f=new (then ours -, right 0)
        Absent         ours old  Keep/Repair: write f=new (then ours old, right 0)
        Absent         ours old  Keep/Report: write f=new (then ours old, right 0)
        Absent         ours old  Replace/Repair: write f=new (then ours old, right 0)
        File("new")    ours -    Keep/Repair: nothing (then ours -, right 1)
        File("new")    ours -    Keep/Report: nothing (then ours -, right 1)
        File("new")    ours -    Replace/Repair: nothing (then ours new, right 1)
        File("new")    ours old  Keep/Repair: nothing (then ours new, right 1)
        File("new")    ours old  Keep/Report: nothing (then ours new, right 1)
        File("new")    ours old  Replace/Repair: nothing (then ours new, right 1)
        File("old")    ours -    Keep/Repair: nothing Occupied(then ours -, right 0)
        File("old")    ours -    Keep/Report: nothing Occupied(then ours -, right 0)
        File("old")    ours -    Replace/Repair: write f=new over old (then ours -, right 0)
        File("old")    ours old  Keep/Repair: write f=new over old (then ours old, right 0)
        File("old")    ours old  Keep/Report: write f=new over old (then ours old, right 0)
        File("old")    ours old  Replace/Repair: write f=new over old (then ours old, right 0)
        File("other")  ours -    Keep/Repair: nothing Occupied(then ours -, right 0)
        File("other")  ours -    Keep/Report: nothing Occupied(then ours -, right 0)
        File("other")  ours -    Replace/Repair: write f=new over other (then ours -, right 0)
        File("other")  ours old  Keep/Repair: write f=new over other (then ours old, right 0)
        File("other")  ours old  Keep/Report: nothing Drifted(then ours old, right 0)
        File("other")  ours old  Replace/Repair: write f=new over other (then ours old, right 0)
        Large          ours -    Keep/Repair: nothing Occupied(then ours -, right 0)
        Large          ours -    Keep/Report: nothing Occupied(then ours -, right 0)
        Large          ours -    Replace/Repair: nothing Occupied(then ours -, right 0)
        Large          ours old  Keep/Repair: nothing NotAFile(then ours old, right 0)
        Large          ours old  Keep/Report: nothing Drifted(then ours old, right 0)
        Large          ours old  Replace/Repair: nothing NotAFile(then ours old, right 0)
        Other          ours -    Keep/Repair: nothing NotAFile(then ours -, right 0)
        Other          ours -    Keep/Report: nothing NotAFile(then ours -, right 0)
        Other          ours -    Replace/Repair: nothing NotAFile(then ours -, right 0)
        Other          ours old  Keep/Repair: nothing NotAFile(then ours old, right 0)
        Other          ours old  Keep/Report: nothing NotAFile(then ours old, right 0)
        Other          ours old  Replace/Repair: nothing NotAFile(then ours old, right 0)
        "#);
    }

    /// Every (there, policy) of a file that the resource wrote as `old`.
    #[test]
    fn one_file_that_is_no_longer_declared() {
        let wanted = BTreeMap::new();
        let mut table = String::new();
        for there in [
            Seen::Absent,
            Seen::File("old".to_owned()),
            Seen::File("other".to_owned()),
            Seen::Large,
            Seen::Other,
        ] {
            for prune in [Prune::Managed, Prune::Never] {
                let declared = Declared {
                    wanted: &wanted,
                    existing: Existing::Keep,
                    drift: Drift::Repair,
                    prune,
                    others: &BTreeMap::new(),
                };
                let before = Managed::from([("f".to_owned(), "old".to_owned())]);
                let (mut managed, mut left) = (before.clone(), before);
                let plan = converge(&declared, &mut managed, true, |_| there.clone());
                let leaving = leave(prune, &mut left, true, |_| there.clone());
                assert_eq!(managed, left);
                let _ = writeln!(
                    table,
                    "{:<14} {prune:?}: {} / leaving: {}, kept {:?}, still ours {}",
                    format!("{there:?}"),
                    step(&plan),
                    step(&leaving),
                    plan.kept,
                    managed.len()
                );
            }
        }
        insta::assert_snapshot!(table, @r#"
        Absent         Managed: nothing / leaving: release, kept [], still ours 0
        Absent         Never: nothing / leaving: release, kept [], still ours 0
        File("old")    Managed: remove f=old / leaving: remove f=old, kept [], still ours 1
        File("old")    Never: nothing / leaving: release, kept ["f"], still ours 0
        File("other")  Managed: nothing / leaving: release, kept ["f"], still ours 0
        File("other")  Never: nothing / leaving: release, kept ["f"], still ours 0
        Large          Managed: nothing / leaving: release, kept ["f"], still ours 0
        Large          Never: nothing / leaving: release, kept ["f"], still ours 0
        Other          Managed: nothing / leaving: release, kept ["f"], still ours 0
        Other          Never: nothing / leaving: release, kept ["f"], still ours 0
        "#);
    }

    /// Steps on a directory in memory come to an end, and then all is as declared, whatever is in the way of what.
    #[test]
    fn steps_come_to_an_end() {
        let old = [("a", "1"), ("b/c", "1"), ("d", "1")];
        let new = [("a/x", "2"), ("b", "2"), ("d", "3"), ("e", "3")];
        let mut disk: Managed = old
            .iter()
            .map(|(path, sha)| ((*path).to_owned(), (*sha).to_owned()))
            .collect();
        let mut managed = disk.clone();
        let wanted: BTreeMap<String, Wanted> = new
            .iter()
            .map(|(path, sha)| ((*path).to_owned(), Wanted::Content((*sha).to_owned())))
            .collect();
        let declared = Declared {
            wanted: &wanted,
            existing: Existing::Keep,
            drift: Drift::Repair,
            prune: Prune::Managed,
            others: &BTreeMap::new(),
        };
        let mut is_claimed = false;
        let mut steps = Vec::new();
        loop {
            let seen = |path: &str| {
                disk.get(path)
                    .map_or(Seen::Absent, |sha| Seen::File(sha.clone()))
            };
            let plan = converge(&declared, &mut managed, is_claimed, seen);
            let Some(next) = plan.step.clone() else {
                assert_eq!((plan.right, plan.blocked.len()), (4, 0));
                break;
            };
            steps.push(step(&plan));
            assert!(steps.len() < 20, "{steps:?}");
            match next {
                Step::Claim => is_claimed = true,
                Step::Write { path, sha256, .. } => {
                    let in_the_way = disk.keys().any(|other| {
                        other.starts_with(&format!("{path}/"))
                            || path.starts_with(&format!("{other}/"))
                    });
                    assert!(!in_the_way, "{path}: {disk:?}");
                    disk.insert(path.clone(), sha256.clone());
                    managed.insert(path, sha256);
                }
                Step::Remove { path, .. } => {
                    disk.remove(&path);
                    managed.remove(&path);
                }
                Step::Release => unreachable!("nothing is left here"),
            }
        }
        assert_eq!(
            steps,
            [
                "claim",
                "remove a=1",
                "remove b/c=1",
                "write a/x=2",
                "write b=2",
                "write d=3 over 1",
                "write e=3"
            ]
        );
        assert_eq!(disk, managed);
    }
}
