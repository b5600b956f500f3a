//! What the libraries have to say while they work: warnings and errors, as lines on standard error.
//!
//! A scheduler that can't take up a run tries again later and only logs why; without these lines work would just stop. Not here:
//! errors of the command itself, which end it.

use std::fmt::{Debug, Write as _};
use std::io::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::text;

/// Shows warnings from now on. A program that has its own subscriber keeps it.
pub(crate) fn show() {
    drop(tracing::subscriber::set_global_default(Lines));
}

/// Writes each event as one line. Spans are not kept: each event names what it is about.
struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.is_event()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let said = format!("warning: {}{}", line.message, line.fields);
        // Nobody can be told that standard error is gone.
        drop(writeln!(io::stderr().lock(), "{}", text::line(&said)));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, "; {}: {value:?}", field.name())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        struct Kept(std::sync::Mutex<String>);
        impl Subscriber for &'static Kept {
            fn enabled(&self, metadata: &Metadata<'_>) -> bool {
                Lines.enabled(metadata)
            }
            fn new_span(&self, attributes: &Attributes<'_>) -> Id {
                Lines.new_span(attributes)
            }
            fn record(&self, _: &Id, _: &Record<'_>) {}
            fn record_follows_from(&self, _: &Id, _: &Id) {}
            fn event(&self, event: &Event<'_>) {
                let mut line = Line::default();
                event.record(&mut line);
                let mut kept = self.0.lock().unwrap();
                let _ = writeln!(kept, "{}{}", line.message, line.fields);
            }
            fn enter(&self, _: &Id) {}
            fn exit(&self, _: &Id) {}
        }
        let kept: &'static Kept = Box::leak(Box::new(Kept(std::sync::Mutex::default())));
        tracing::subscriber::with_default(kept, || {
            tracing::warn!(run = %"run-1", error = %"busy", "a run could not be executed");
            tracing::info!("not shown");
        });
        assert_eq!(
            *kept.0.lock().unwrap(),
            "a run could not be executed; run: run-1; error: busy\n"
        );
    }
}
