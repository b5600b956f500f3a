//! A run while it goes on: finished nodes as lines, and on a terminal one live line with the present node and its time.

use std::io;

use holdpoint_state::clock::UnixMillis;
use holdpoint_workflows::routing::NodeOutcome;
use holdpoint_workflows::views::RunView;

use super::{Output, text};

/// The frames of the live line's sign.
const SIGNS: [&str; 4] = ["|", "/", "-", "\\"];
/// The width of a terminal that does not tell it.
const COLUMNS: usize = 80;

/// What was shown of one run.
#[derive(Debug)]
pub(crate) struct Progress {
    output: Output,
    steps: usize,
    frame: usize,
    live: bool,
    /// The present node and since when it is shown.
    node: Option<(String, UnixMillis)>,
}

impl Progress {
    pub(crate) fn new(output: Output) -> Self {
        Self {
            output,
            steps: 0,
            frame: 0,
            live: false,
            node: None,
        }
    }

    /// How many steps were shown.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Shows what is new in a run.
    pub(crate) fn show(&mut self, view: &RunView, now: UnixMillis) {
        for step in view.steps.iter().skip(self.steps) {
            self.clear();
            let result = &step.result;
            let took = text::duration(result.duration_ms.unsigned_abs());
            let node = text::line(result.node_id.as_str());
            let sign = match result.outcome {
                NodeOutcome::Ok => "ok  ",
                NodeOutcome::Failed => "FAIL",
                NodeOutcome::TimedOut => "LATE",
                NodeOutcome::Cancelled => "STOP",
            };
            match &result.error {
                Some(error) => self
                    .output
                    .line(format!("  {sign} {node} ({took}): {}", text::line(error))),
                None => self.output.line(format!("  {sign} {node} ({took})")),
            }
        }
        self.steps = self.steps.max(view.steps.len());
        self.live(view, now);
    }

    fn live(&mut self, view: &RunView, now: UnixMillis) {
        if !self.output.is_live() || view.status.is_terminal() {
            return;
        }
        let at = match (&view.current_node, &view.current_attempt_id) {
            (Some(node), Some(attempt)) => {
                let attempt = attempt.to_string();
                let since = match &self.node {
                    Some((shown, since)) if *shown == attempt => *since,
                    _ => now,
                };
                self.node = Some((attempt, since));
                let elapsed = text::duration(now.since(since).max(0).unsigned_abs());
                let detail = view
                    .status_detail
                    .as_deref()
                    .map_or(String::new(), |detail| format!(": {}", text::line(detail)));
                format!("{} {elapsed}{detail}", text::line(node.as_str()))
            }
            _ => view.display_status.as_str().to_owned(),
        };
        let sign = SIGNS.get(self.frame % SIGNS.len()).copied().unwrap_or("*");
        self.frame += 1;
        let columns = rustix::termios::tcgetwinsize(io::stdout())
            .map_or(COLUMNS, |size| usize::from(size.ws_col))
            .max(20);
        self.live = true;
        // The sequence is this program's own: back to the first column, and clear the line.
        let line = text::fit(&format!("  {sign}    {at}"), columns);
        super::stdout::write(&format!("\r\u{1b}[2K{line}"));
    }

    /// Takes the live line away, so that other text can be written.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.live) {
            super::stdout::write("\r\u{1b}[2K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
