//! `state`: status, doctor, verify, backup, restore. None but restore changes a store.

use std::fmt::Write as _;
use std::path::Path;

use holdpoint_state::maintenance::{self, Level, Status, VerifyReport};

use super::Context;
use crate::cli::{PathArgs, VerifyArgs};
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::text;

pub(super) fn status(context: &Context) -> Result<ExitStatus, CommandError> {
    let status = context.existing()?.status()?;
    context.output.document(&status)?;
    context.output.line(described(&status).trim_end());
    Ok(ExitStatus::Done)
}

fn described(status: &Status) -> String {
    let mut told = String::new();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(told, "{name:<12} {}", text::line(value));
    };
    row("store", &path(&status.path));
    row("SQLite", &status.engine.sqlite_version);
    row(
        "schema",
        &format!(
            "{} version {}, domains {}",
            status.schema.name,
            status.schema.version,
            status.schema.domains.join(", ")
        ),
    );
    row("file system", &status.file_system);
    row("size", &format!("{} bytes", status.sizes.database_bytes));
    row("log", &format!("{} bytes", status.sizes.wal_bytes));
    row("last event", &status.last_event_seq.to_string());
    row(
        "leases",
        &format!(
            "{} active, {} expired",
            status.leases.active, status.leases.expired
        ),
    );
    for lease in &status.leases.listed {
        row(
            "",
            &format!(
                "{} {} by a {} (generation {}) until {}",
                lease.resource_type,
                lease.resource_key,
                lease.owner_type,
                lease.generation,
                text::instant(lease.expires_at.0)
            ),
        );
    }
    for effects in &status.unsettled_effects {
        row(
            "effects",
            &format!(
                "{} {} of type {}",
                effects.count, effects.status, effects.effect_type
            ),
        );
    }
    for (table, count) in &status.rows {
        row("rows", &format!("{count:>8} {table}"));
    }
    for finding in &status.findings {
        row("finding", &format!("{}: {}", finding.name, finding.summary));
    }
    told
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

pub(super) fn doctor(context: &Context) -> Result<ExitStatus, CommandError> {
    let report = context.existing()?.doctor()?;
    context.output.document(&report)?;
    for check in &report.checks {
        let level = match check.level {
            Level::Fine => "fine   ",
            Level::Notice => "notice ",
            Level::Problem => "PROBLEM",
        };
        context.output.line(format!(
            "{level}  {}: {}",
            check.name,
            text::line(&check.detail)
        ));
        if let Some(advice) = &check.advice {
            context
                .output
                .line(format!("         {}", text::line(advice)));
        }
    }
    Ok(ExitStatus::Done)
}

pub(super) fn verify(context: &Context, args: &VerifyArgs) -> Result<ExitStatus, CommandError> {
    let report = match &args.path {
        Some(path) => maintenance::verify_file(path, &home::schema()?)?,
        None => context.existing()?.verify()?,
    };
    context.output.document(&report)?;
    tell_report(context, &report);
    Ok(if report.is_clean() {
        ExitStatus::Done
    } else {
        ExitStatus::Violations
    })
}

pub(super) fn tell_report(context: &Context, report: &VerifyReport) {
    for check in &report.checks {
        let name = serde_json::json!(check.check);
        context.output.line(format!(
            "{:<12} {} examined, {} findings",
            name.as_str().unwrap_or_default(),
            check.examined,
            check.findings
        ));
    }
    for finding in &report.findings {
        context.output.line(format!(
            "{} ({}){}: {} rows {}",
            text::line(&finding.name),
            text::line(&finding.summary),
            finding
                .table
                .as_deref()
                .map_or(String::new(), |table| format!(" in {table}")),
            finding.count,
            text::line(&finding.ids.join(", "))
        ));
        for detail in &finding.details {
            context.output.line(format!("  {}", text::line(detail)));
        }
    }
    if report.is_clean() {
        context.output.line("clean");
    }
}

pub(super) fn backup(context: &Context, args: &PathArgs) -> Result<ExitStatus, CommandError> {
    let report = context.existing()?.backup(&args.path)?;
    context.output.document(&report)?;
    context.output.line(format!(
        "{}: {} bytes, verified",
        text::line(&path(&report.path)),
        report.size_bytes
    ));
    Ok(ExitStatus::Done)
}

pub(super) fn restore(context: &Context, args: &PathArgs) -> Result<ExitStatus, CommandError> {
    let target = home::store_path(context.cli.home.as_deref())?;
    let report = maintenance::restore(&args.path, target, &home::schema()?)?;
    context.output.document(&report)?;
    context.output.line(format!(
        "{}: restored, {} bytes, verified",
        text::line(&path(&report.path)),
        report.size_bytes
    ));
    if let Some(aside) = &report.set_aside {
        context
            .output
            .line(format!("the old store is {}", text::line(&path(aside))));
    }
    Ok(ExitStatus::Done)
}
