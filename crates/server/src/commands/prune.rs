//! `prune`: what retention would delete and why not the rest, and with `--apply` the deletion.

use std::fmt::Write as _;

use holdpoint_state::Database;
use holdpoint_state::clock::UnixMillis;
use holdpoint_state::maintenance::retention::{Deleted, PruneReport, RetentionPlan, Taking, Tree};
use holdpoint_workflows::retention::KEEP_MS;
use serde_json::{Value, json};

use super::Context;
use crate::cli::PruneArgs;
use crate::error::{CommandError, ExitStatus};
use crate::output::text;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

pub(super) fn prune(context: &Context, args: &PruneArgs) -> Result<ExitStatus, CommandError> {
    // A bad time is told before anything is opened.
    let before = args.before.as_deref().map(instant).transpose()?;
    let store = context.existing()?;
    let cutoff = before.unwrap_or_else(|| {
        let keep_ms = args
            .older_than
            .map_or(KEEP_MS, |days| i64::from(days) * DAY_MS);
        store.clock().now().plus(-keep_ms)
    });
    match &args.backup {
        Some(backup) if args.apply => apply(context, &store, cutoff, backup),
        _ => {
            let plan = store.retention_plan(cutoff)?;
            context.output.document(&document(&plan, None))?;
            tell(context, &plan);
            Ok(ExitStatus::Done)
        }
    }
}

fn apply(
    context: &Context,
    store: &Database,
    cutoff: UnixMillis,
    backup: &std::path::Path,
) -> Result<ExitStatus, CommandError> {
    let report = store.prune(&Taking::before(cutoff), backup)?;
    context
        .output
        .document(&document(&report.plan, Some(&report)))?;
    tell(context, &report.plan);
    let compaction = &report.compaction;
    context.output.line(format!(
        "deleted {}; the store had {} bytes and has {}; the backup is {}",
        deleted(&report.deleted),
        compaction.bytes_before,
        compaction.bytes_after,
        text::line(&report.backup.path.display().to_string())
    ));
    if let Some(problem) = &compaction.problem {
        context.output.line(format!(
            "the file could not be written anew: {}",
            text::line(problem)
        ));
    }
    Ok(if report.verified.is_clean() {
        ExitStatus::Done
    } else {
        super::state::tell_report(context, &report.verified);
        ExitStatus::Violations
    })
}

/// The document: the plan, and what was done; null where nothing was done.
fn document(plan: &RetentionPlan, report: Option<&PruneReport>) -> Value {
    let trees: Vec<Value> = plan
        .trees
        .iter()
        .map(|tree| {
            let runs = tree.members.iter();
            json!({
                "rootRunId": tree.root,
                "runs": runs
                    .map(|run| json!({ "runId": run.name, "finishedAt": run.ended_at }))
                    .collect::<Vec<_>>(),
                "selected": tree.selected,
                "blockers": tree.blockers,
            })
        })
        .collect();
    json!({
        "cutoff": plan.cutoff,
        "applied": report.is_some(),
        "candidates": plan.candidates,
        "blocked": plan.blocked,
        "selectedRuns": plan.selected_members,
        "trees": trees,
        "backup": report.map(|report| &report.backup),
        "deleted": report.map(|report| json!({
            "trees": report.deleted.trees,
            "runs": report.deleted.members,
            "shared": report.deleted.shared,
        })),
        "compaction": report.map(|report| &report.compaction),
        "verified": report.map(|report| &report.verified),
    })
}

fn tell(context: &Context, plan: &RetentionPlan) {
    for tree in &plan.trees {
        context.output.line(headline(tree));
        for held in &tree.blockers {
            let more = held
                .count
                .saturating_sub(u64::try_from(held.rows.len()).unwrap_or(u64::MAX));
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            context.output.line(format!(
                "  {}: {} {}{more}",
                held.name,
                held.summary,
                text::line(&held.rows.join(", "))
            ));
        }
    }
    context.output.line(format!(
        "before {}: {} of {} trees can go, {} runs",
        text::instant(plan.cutoff.0),
        plan.candidates.saturating_sub(plan.blocked),
        plan.candidates,
        plan.selected_members
    ));
}

fn headline(tree: &Tree) -> String {
    let last = tree.members.iter().filter_map(|run| run.ended_at).max();
    format!(
        "{:<4} {} ({} {}{})",
        if tree.selected { "go" } else { "stay" },
        text::line(&tree.root),
        tree.members.len(),
        if tree.members.len() == 1 {
            "run"
        } else {
            "runs"
        },
        last.map_or(String::new(), |last| format!(
            ", last ended {}",
            text::instant(last.0)
        )),
    )
}

fn deleted(deleted: &Deleted) -> String {
    let mut told = format!("{} trees, {} runs", deleted.trees, deleted.members);
    for (table, rows) in &deleted.shared {
        // Writing to a string can't fail.
        let _ = write!(told, ", {rows} {table}");
    }
    told
}

/// An instant as people and programs write it: epoch milliseconds, a day, or RFC 3339 in UTC (`2026-07-01T12:00:00Z`).
fn instant(text: &str) -> Result<UnixMillis, CommandError> {
    parse(text).map(UnixMillis).ok_or_else(|| {
        CommandError::input(
            "time",
            format!(
                "{text:?} is no time; write epoch milliseconds, a day (2026-07-01) or an instant in UTC (2026-07-01T12:00:00Z)"
            ),
        )
    })
}

fn parse(text: &str) -> Option<i64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let (day, time) = match text.split_once(['T', 't']) {
        Some((day, time)) => (day, Some(time)),
        None => (text, None),
    };
    let mut parts = day.split('-');
    let (year, month, day) = (
        digits(parts.next()?, 4)?,
        digits(parts.next()?, 2)?,
        digits(parts.next()?, 2)?,
    );
    if parts.next().is_some() || !(1..=12).contains(&month) || day < 1 || length(year, month) < day
    {
        return None;
    }
    let midnight = days(year, month, day) * DAY_MS;
    let Some(time) = time else {
        return Some(midnight);
    };
    let time = time.strip_suffix(['Z', 'z'])?;
    let (time, fraction) = match time.split_once('.') {
        Some((time, fraction)) => (time, Some(fraction)),
        None => (time, None),
    };
    let mut parts = time.split(':');
    let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let second = parts.next().map_or(Some(0), |second| digits(second, 2))?;
    let milliseconds = match fraction {
        None => 0,
        Some(fraction) => {
            digits(fraction, fraction.len()).filter(|_| (1..=9).contains(&fraction.len()))?;
            let first = format!("{fraction:0<3}");
            first.get(..3)?.parse().ok()?
        }
    };
    if parts.next().is_some() || 23 < hour || 59 < minute || 59 < second {
        return None;
    }
    Some(midnight + hour * HOUR_MS + minute * MINUTE_MS + second * SECOND_MS + milliseconds)
}

/// A number of exactly so many digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

fn length(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a day of the Gregorian calendar, by counting leap days of whole years from March on.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (written, expected) in [
            ("0", Some(0)),
            ("1767225600000", Some(1_767_225_600_000)),
            ("1970-01-01", Some(0)),
            ("2026-01-01", Some(1_767_225_600_000)),
            ("2026-01-01T00:00Z", Some(1_767_225_600_000)),
            ("2026-01-01T00:00:00Z", Some(1_767_225_600_000)),
            ("2026-01-01T01:02:03.004Z", Some(1_767_229_323_004)),
            ("2026-01-01T00:00:00.5Z", Some(1_767_225_600_500)),
            ("2024-02-29", Some(1_709_164_800_000)),
            ("1969-12-31", Some(-DAY_MS)),
            ("2000-03-01", Some(951_868_800_000)),
            ("2026-02-29", None),
            ("2026-13-01", None),
            ("2026-1-1", None),
            ("2026-01-01T24:00:00Z", None),
            ("2026-01-01T00:00:00", None),
            ("2026-01-01T00:00:00+02:00", None),
            ("2026-01-01T00:00:00.Z", None),
            ("2026-01-01T00:00:00:00Z", None),
            ("yesterday", None),
            ("-1", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse(written), expected, "{written}");
        }
    }
}
