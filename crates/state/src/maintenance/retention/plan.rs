//! Which trees there are, which of them are dead, and what holds the others: for all of them on one snapshot, and again for one.
//!
//! Both ways go through the same functions and the same statements, so that they can't disagree about what a dead tree is. Nothing here
//! writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rusqlite::Connection;
use serde::Serialize;

use super::select::{self, Scope};
use crate::clock::UnixMillis;
use crate::error::StateError;
use crate::id::Digest;
use crate::schema::Schema;

/// How many rows are named for one blocker of one tree at most.
const ROWS_MAX: usize = 20;

/// What retention would take at one instant, and why not the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RetentionPlan {
    /// A member that ended before this instant may go.
    pub cutoff: UnixMillis,
    /// Trees with at least one such member.
    pub candidates: u64,
    /// Candidates that something holds.
    pub blocked: u64,
    /// Members of the other candidates, which would be deleted.
    pub selected_members: u64,
    /// The candidates, in the order of their roots.
    pub trees: Vec<Tree>,
}

/// A candidate: members that are kept or deleted together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tree {
    /// The name of its root.
    pub root: String,
    /// Its members, by name.
    pub members: Vec<TreeMember>,
    /// Whether it would be deleted: nothing holds it.
    pub selected: bool,
    /// What holds it.
    pub blockers: Vec<Held>,
    /// SHA-256 over the revisions of everything that belongs to it: it changes with every change of the tree.
    pub signature: Digest,
    #[serde(skip)]
    pub(super) keys: Vec<i64>,
    #[serde(skip)]
    pub(super) related: Vec<i64>,
}

impl Tree {
    pub(super) fn size(&self) -> u64 {
        u64::try_from(self.members.len()).unwrap_or(u64::MAX)
    }
}

/// A member of a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeMember {
    /// Its name.
    pub name: String,
    /// When it ended; null while it lives.
    pub ended_at: Option<UnixMillis>,
}

/// One reason that holds a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The blocker's name.
    pub name: &'static str,
    /// Why it holds, in one sentence.
    pub summary: &'static str,
    /// How many rows say so.
    pub count: u64,
    /// The rows, twenty at most.
    pub rows: Vec<String>,
}

impl RetentionPlan {
    /// In what another selection differs, for a person; none when both would take the same trees in the same state.
    pub(super) fn differs_from(&self, other: &Self) -> Option<String> {
        let taken = |plan: &Self| -> BTreeMap<String, Digest> {
            let trees = plan.trees.iter().filter(|tree| tree.selected);
            trees
                .flat_map(|tree| {
                    let names = tree.members.iter().map(|member| member.name.clone());
                    names.map(|name| (name, tree.signature))
                })
                .collect()
        };
        let (before, after) = (taken(self), taken(other));
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let name = names
            .into_iter()
            .find(|name| before.get(*name) != after.get(*name))?;
        Some(
            match (before.contains_key(name), after.contains_key(name)) {
                (true, false) => format!("{name} is no longer selected"),
                (false, _) => format!("{name} is selected now"),
                (true, true) => format!("the tree of {name} was changed"),
            },
        )
    }
}

/// The whole plan.
pub(super) fn make(
    connection: &Connection,
    schema: &Schema,
    cutoff: UnixMillis,
    now: UnixMillis,
) -> Result<RetentionPlan, StateError> {
    select::refuse_faults(connection, schema)?;
    let members = select::members(connection, schema, Scope::All)?;
    let mut groups = Groups::of(members.keys().copied());
    for link in select::links(schema) {
        select::pairs(
            connection,
            link.pairs,
            Scope::All,
            "member",
            |one, other| {
                groups.join(one, other);
            },
        )?;
    }
    let mut candidates: Vec<Vec<i64>> = groups
        .trees()
        .into_iter()
        .filter(|keys| {
            let mut ended = keys.iter().filter_map(|key| members.get(key)?.ended_at);
            ended.any(|ended| ended < cutoff)
        })
        .collect();
    candidates.sort_by_cached_key(|keys| select::root(keys, &members));
    let mut trees = judge(
        connection,
        schema,
        candidates,
        &members,
        Scope::All,
        (cutoff, now),
    )?;
    trees.sort_by(|one, other| one.root.cmp(&other.root));
    let count = |wanted: bool| trees.iter().filter(move |tree| tree.selected == wanted);
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    Ok(RetentionPlan {
        cutoff,
        candidates: number(trees.len()),
        blocked: number(count(false).count()),
        selected_members: count(true).map(Tree::size).sum(),
        trees,
    })
}

/// The tree of exactly these members as it is now; none when it has other members than these.
pub(super) fn again(
    connection: &Connection,
    schema: &Schema,
    keys: &[i64],
    cutoff: UnixMillis,
    now: UnixMillis,
) -> Result<Option<Tree>, StateError> {
    let members = select::members(connection, schema, Scope::Of(keys))?;
    if members.len() != keys.len() {
        return Ok(None);
    }
    let mut is_whole = true;
    for link in select::links(schema) {
        // Whom a member links to never changes; that somebody new links to it can.
        let ends: &[&'static str] = if link.grows {
            &["member", "other"]
        } else {
            &["member"]
        };
        for end in ends {
            select::pairs(
                connection,
                link.pairs,
                Scope::Of(keys),
                end,
                |one, other| {
                    is_whole &= members.contains_key(&one) && members.contains_key(&other);
                },
            )?;
        }
    }
    if !is_whole {
        return Ok(None);
    }
    let candidates = vec![keys.to_vec()];
    let trees = judge(
        connection,
        schema,
        candidates,
        &members,
        Scope::Of(keys),
        (cutoff, now),
    )?;
    Ok(trees.into_iter().next())
}

/// A tree under judgement.
#[derive(Default)]
struct Case {
    held: BTreeMap<&'static str, Held>,
    related: BTreeSet<i64>,
    facts: Vec<String>,
}

impl Case {
    fn hold(&mut self, name: &'static str, summary: &'static str, row: String) {
        let held = self.held.entry(name).or_insert_with(|| Held {
            name,
            summary,
            count: 0,
            rows: Vec::new(),
        });
        held.count += 1;
        if held.rows.len() < ROWS_MAX {
            held.rows.push(row);
        }
    }
}

/// Judges candidates. The statements are run for `scope`, which has all of their members.
fn judge(
    connection: &Connection,
    schema: &Schema,
    candidates: Vec<Vec<i64>>,
    members: &BTreeMap<i64, select::Member>,
    scope: Scope<'_>,
    (cutoff, now): (UnixMillis, UnixMillis),
) -> Result<Vec<Tree>, StateError> {
    let mut cases: Vec<Case> = candidates.iter().map(|_| Case::default()).collect();
    let mut tree_of: HashMap<i64, usize> = HashMap::new();
    for (index, keys) in candidates.iter().enumerate() {
        tree_of.extend(keys.iter().map(|key| (*key, index)));
    }
    for (key, member) in members {
        let Some(case) = tree_of.get(key).and_then(|index| cases.get_mut(*index)) else {
            continue;
        };
        case.related.insert(*key);
        match member.ended_at {
            None => case.hold("notOver", "A member is not over.", member.name.clone()),
            Some(ended) if cutoff <= ended => case.hold(
                "tooYoung",
                "A member ended at the cutoff or later.",
                format!("{} ended at {ended}", member.name),
            ),
            Some(_) => {}
        }
    }
    let case_of = |cases: &mut Vec<Case>, key: i64, then: &mut dyn FnMut(&mut Case)| {
        if let Some(case) = tree_of.get(&key).and_then(|index| cases.get_mut(*index)) {
            then(case);
        }
    };
    for domain in schema.domains() {
        let retention = &domain.retention;
        for blocker in retention.blockers {
            select::texts(connection, blocker.rows, scope, |key, row| {
                case_of(&mut cases, key, &mut |case| {
                    case.hold(blocker.name, blocker.summary, row.clone());
                });
            })?;
        }
        for crossing in retention.crossings {
            select::crossings(connection, crossing.pairs, scope, |one, other, row| {
                if tree_of.get(&one) != tree_of.get(&other) {
                    for key in [one, other] {
                        case_of(&mut cases, key, &mut |case| {
                            case.hold(crossing.name, crossing.summary, row.clone());
                        });
                    }
                }
            })?;
        }
        for sql in retention.related {
            select::pairs(connection, sql, scope, "member", |key, resource| {
                case_of(&mut cases, key, &mut |case| {
                    case.related.insert(resource);
                });
            })?;
        }
        for sql in retention.facts {
            select::texts(connection, sql, scope, |key, fact| {
                case_of(&mut cases, key, &mut |case| case.facts.push(fact.clone()));
            })?;
        }
    }
    of_kernel(connection, scope, &mut cases, now)?;
    let mut trees = Vec::with_capacity(candidates.len());
    for (keys, case) in candidates.into_iter().zip(cases) {
        let mut of_tree: Vec<TreeMember> = keys
            .iter()
            .filter_map(|key| members.get(key))
            .map(select::Member::shown)
            .collect();
        of_tree.sort();
        trees.push(Tree {
            root: select::root(&keys, members),
            selected: case.held.is_empty(),
            signature: select::signature(connection, &case.related, case.facts, &of_tree)?,
            blockers: case.held.into_values().collect(),
            members: of_tree,
            related: case.related.into_iter().collect(),
            keys,
        });
    }
    Ok(trees)
}

/// What the kernel knows: effects belong to their sources; an open effect and a live lease hold.
fn of_kernel(
    connection: &Connection,
    scope: Scope<'_>,
    cases: &mut [Case],
    now: UnixMillis,
) -> Result<(), StateError> {
    let mut case_of: HashMap<i64, usize> = HashMap::new();
    for (index, case) in cases.iter().enumerate() {
        case_of.extend(case.related.iter().map(|key| (*key, index)));
    }
    let sources: Vec<i64> = cases
        .iter()
        .flat_map(|case| case.related.iter().copied())
        .collect();
    let of_sources = scope.narrowed(&sources);
    let find = |cases: &mut [Case], key: i64, then: &mut dyn FnMut(&mut Case)| {
        if let Some(case) = case_of.get(&key).and_then(|index| cases.get_mut(*index)) {
            then(case);
        }
    };
    select::pairs(
        connection,
        select::EFFECTS,
        of_sources,
        "member",
        |source, effect| {
            find(cases, source, &mut |case| {
                case.related.insert(effect);
            });
        },
    )?;
    select::open_effects(connection, of_sources, |source, row| {
        find(cases, source, &mut |case| {
            let summary = "An effect is not settled, or nobody knows its outcome.";
            case.hold("effect", summary, row.clone());
        });
    })?;
    for (index, case) in cases.iter().enumerate() {
        case_of.extend(case.related.iter().map(|key| (*key, index)));
    }
    let resources: Vec<i64> = cases
        .iter()
        .flat_map(|case| case.related.iter().copied())
        .collect();
    select::live_leases(
        connection,
        scope.narrowed(&resources),
        now,
        |resource, row| {
            if let Some(case) = case_of
                .get(&resource)
                .and_then(|index| cases.get_mut(*index))
            {
                case.hold(
                    "lease",
                    "Somebody holds the lease of what belongs to it.",
                    row,
                );
            }
        },
    )
}

/// Disjoint sets of members.
struct Groups {
    keys: Vec<i64>,
    index: HashMap<i64, usize>,
    parent: Vec<usize>,
}

impl Groups {
    fn of(keys: impl Iterator<Item = i64>) -> Self {
        let keys: Vec<i64> = keys.collect();
        Self {
            index: keys
                .iter()
                .enumerate()
                .map(|(index, key)| (*key, index))
                .collect(),
            parent: (0..keys.len()).collect(),
            keys,
        }
    }

    fn find(&mut self, index: usize) -> usize {
        let mut at = index;
        while let Some(up) = self.parent.get(at).copied().filter(|up| *up != at) {
            // Halves the way for the next one.
            let further = self.parent.get(up).copied().unwrap_or(up);
            if let Some(slot) = self.parent.get_mut(at) {
                *slot = further;
            }
            at = further;
        }
        at
    }

    fn join(&mut self, one: i64, other: i64) {
        let (Some(one), Some(other)) = (self.index.get(&one), self.index.get(&other)) else {
            return;
        };
        let (one, other) = (*one, *other);
        let (one, other) = (self.find(one), self.find(other));
        // The smaller index leads, so that the outcome does not depend on the order of the links.
        if let Some(slot) = self.parent.get_mut(one.max(other)) {
            *slot = one.min(other);
        }
    }

    fn trees(mut self) -> Vec<Vec<i64>> {
        let mut trees: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        for index in 0..self.keys.len() {
            let leader = self.find(index);
            if let Some(key) = self.keys.get(index) {
                trees.entry(leader).or_default().push(*key);
            }
        }
        trees.into_values().collect()
    }
}
