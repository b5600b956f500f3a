//! What a person reads of a request, piece by piece, in the one order that every renderer keeps. Nothing is left out.
//!
//! Rooms: `parts` is the plain text of a request and the messages that it takes.
//!
//! Not here: how a piece looks elsewhere (the renderers).

pub mod parts;

use holdpoint_state::clock::UnixMillis;

use crate::model::{Answerers, Block, ChannelRequest, ChoiceId, TextInput};

/// One piece of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'a> {
    /// The title.
    Title(&'a str),
    /// The summary.
    Summary(&'a str),
    /// Running text, with lines and tabulators.
    Paragraph(&'a str),
    /// A heading.
    Section(&'a str),
    /// One item of a list.
    Bullet(&'a str),
    /// A name with its value.
    Field {
        /// The name.
        label: &'a str,
        /// The value.
        value: &'a str,
    },
    /// Text whose spaces and lines stay as they are.
    Preformatted(&'a str),
    /// Until when, and what happens then.
    Deadline {
        /// From this instant on no person may answer.
        at: UnixMillis,
        /// The label of the choice that is taken then; none when the decision ends without an answer.
        automatic: Option<&'a str>,
    },
    /// Whoever asked for the run may not answer.
    AnotherPerson,
    /// One choice.
    Choice {
        /// Its id.
        id: &'a ChoiceId,
        /// What a person reads on its button.
        label: &'a str,
        /// What a person is asked to write with it.
        prompt: Option<&'a str>,
    },
}

/// The pieces of a request, in document order: title, summary, blocks, deadline, who may not answer, choices.
pub fn segments(request: &ChannelRequest) -> Vec<Segment<'_>> {
    let mut segments = vec![
        Segment::Title(&request.title),
        Segment::Summary(request.presentation.summary()),
    ];
    for block in request.presentation.blocks() {
        match block {
            Block::Paragraph { text } => segments.push(Segment::Paragraph(text)),
            Block::Section { title } => segments.push(Segment::Section(title)),
            Block::Preformatted { text } => segments.push(Segment::Preformatted(text)),
            Block::Bullets { items } => {
                segments.extend(items.iter().map(|item| Segment::Bullet(item)));
            }
            Block::Fields { items } => segments.extend(items.iter().map(|item| Segment::Field {
                label: &item.label,
                value: &item.value,
            })),
        }
    }
    if let Some(at) = request.expires_at {
        let automatic = request.default_response.as_ref().map(|default| {
            let choice = request.choices.get(default.choice().as_str());
            choice.map_or(default.choice().as_str(), |choice| choice.label.as_str())
        });
        segments.push(Segment::Deadline { at, automatic });
    }
    if request.answerers == Answerers::AnotherPerson {
        segments.push(Segment::AnotherPerson);
    }
    segments.extend(request.choices.iter().map(|(id, choice)| Segment::Choice {
        id,
        label: &choice.label,
        prompt: choice.input.as_ref().map(TextInput::prompt),
    }));
    segments
}
