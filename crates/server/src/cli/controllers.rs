//! `controllers …`: what may be typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The verbs about managed resources.
#[derive(Debug, Subcommand)]
pub(crate) enum ControllersVerb {
    /// List the resources of the project, and why one is stuck.
    List(ListArgs),
    /// Show a resource with its acts, runs and events.
    Get(GetArgs),
    /// Make the resources of a file, or change their specs; what changes is shown.
    Apply(ApplyArgs),
    /// Have the controller look at a resource now.
    Reconcile(OneResource),
    /// Ask for the end of a resource; its controller cleans up first.
    Delete(OneResource),
    /// Tell why a resource is as it is, and what stands in its way.
    Explain(OneResource),
    /// Take a finalizer away whose controller does not: what it stands for is not cleaned up.
    ForceFinalizer(ForceFinalizerArgs),
    /// Take a resource away whose deletion was asked for, and whose controller is gone.
    ForceDelete(ForceDeleteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProjectArgs {
    /// The directory of the project; otherwise the working directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only the resources of this controller.
    #[arg(value_name = "CONTROLLER")]
    pub(crate) controller: Option<String>,

    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) limit: u32,

    /// The cursor `next` of the page before.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,

    #[command(flatten)]
    pub(crate) project: ProjectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OneResource {
    /// The controller.
    #[arg(value_name = "CONTROLLER")]
    pub(crate) controller: String,

    /// The key of the resource.
    #[arg(value_name = "KEY")]
    pub(crate) key: String,

    #[command(flatten)]
    pub(crate) project: ProjectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) resource: OneResource,

    /// How many events at most: the latest.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) events: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// A file with resources (*.resource.yaml, *.resource.json), or - for standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Only show what would change.
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) project: ProjectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ForceFinalizerArgs {
    #[command(flatten)]
    pub(crate) resource: OneResource,

    /// The finalizer.
    #[arg(value_name = "FINALIZER")]
    pub(crate) finalizer: String,

    /// Why, for the audit trail.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct ForceDeleteArgs {
    #[command(flatten)]
    pub(crate) resource: OneResource,

    /// Why, for the audit trail.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}
