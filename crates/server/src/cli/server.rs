//! What may be typed about the live server.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The verbs of the server.
#[derive(Debug, Subcommand)]
pub(crate) enum ServerVerb {
    /// Serve viewers and execute whatever is due, in the foreground.
    Run(ServerRunArgs),
    /// Start the server in the background; done when it can be connected to.
    Start(ServerRunArgs),
    /// Tell whether a server runs.
    Status(SocketArgs),
    /// End the server, after the present nodes.
    Stop(SocketArgs),
}

/// Where the server listens.
#[derive(Debug, Clone, Args)]
pub(crate) struct SocketArgs {
    /// The socket, instead of host/host.sock beside the store.
    #[arg(
        long,
        env = "HOLDPOINT_SOCKET",
        hide_env_values = true,
        value_name = "PATH"
    )]
    pub(crate) socket: Option<PathBuf>,
}

/// How a server runs.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerRunArgs {
    #[command(flatten)]
    pub(crate) place: SocketArgs,

    /// End by itself when nobody was connected and nothing was due for so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) idle_exit: Option<u64>,

    /// In a session of its own, for `server start`.
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}
