//! The only text of a decision that a person sees: an explicit list, never derived from the machine data.

use serde::Serialize;
use serde_json::Value;

use super::fields::Fields;
use super::invalid::{BLOCKS_MAX, ITEMS_MAX, Invalid, Limit, PRESENTATION_UNITS_MAX};
use super::text::{self, Lines};

/// The schema of a presentation.
pub const PRESENTATION_SCHEMA: &str = "pi-workflows.decision-presentation.v1";

/// What a person reads before deciding: a summary, and blocks in their order. Normalised and within the limits.
///
/// ```
/// use holdpoint_decisions::model::{Block, Presentation};
///
/// let presentation = Presentation::new("Ship it?", vec![Block::paragraph("Cafe\u{301}\r\nis ready.")])?;
/// assert_eq!(presentation.blocks(), [Block::paragraph("Caf\u{e9}\nis ready.")]);
/// // What a terminal would obey is no text for people.
/// assert!(Presentation::new("\u{1b}[2J", Vec::new()).is_err());
/// # Ok::<(), holdpoint_decisions::model::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Presentation {
    schema: &'static str,
    summary: String,
    blocks: Vec<Block>,
}

/// One block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Block {
    /// Running text, with lines and tabulators.
    Paragraph {
        /// The text.
        text: String,
    },
    /// A heading.
    Section {
        /// The title.
        title: String,
    },
    /// A list.
    Bullets {
        /// 1 to 256 items.
        items: Vec<String>,
    },
    /// Names with values.
    Fields {
        /// 1 to 256 items.
        items: Vec<Field>,
    },
    /// Text whose spaces and lines stay as they are.
    Preformatted {
        /// The text.
        text: String,
    },
}

/// A name with a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Field {
    /// The name.
    pub label: String,
    /// The value.
    pub value: String,
}

impl Block {
    /// Running text.
    pub fn paragraph(text: impl Into<String>) -> Self {
        Self::Paragraph { text: text.into() }
    }

    /// A heading.
    pub fn section(title: impl Into<String>) -> Self {
        Self::Section {
            title: title.into(),
        }
    }

    /// A list.
    pub fn bullets<T: Into<String>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::Bullets {
            items: items.into_iter().map(Into::into).collect(),
        }
    }

    /// Names with values.
    pub fn fields<L: Into<String>, V: Into<String>>(
        items: impl IntoIterator<Item = (L, V)>,
    ) -> Self {
        Self::Fields {
            items: items
                .into_iter()
                .map(|(label, value)| Field {
                    label: label.into(),
                    value: value.into(),
                })
                .collect(),
        }
    }

    /// Text whose spaces and lines stay as they are.
    pub fn preformatted(text: impl Into<String>) -> Self {
        Self::Preformatted { text: text.into() }
    }

    /// Each text of the block with its rule, in the order in which it is shown.
    fn texts_mut(&mut self) -> Vec<(&'static str, &mut String, Lines)> {
        match self {
            Self::Paragraph { text } | Self::Preformatted { text } => {
                vec![("text", text, Lines::Many)]
            }
            Self::Section { title } => vec![("title", title, Lines::One)],
            Self::Bullets { items } => items
                .iter_mut()
                .map(|item| ("item", item, Lines::One))
                .collect(),
            Self::Fields { items } => items
                .iter_mut()
                .flat_map(|item| {
                    [
                        ("label", &mut item.label, Lines::One),
                        ("value", &mut item.value, Lines::One),
                    ]
                })
                .collect(),
        }
    }

    fn items(&self) -> Option<usize> {
        match self {
            Self::Bullets { items } => Some(items.len()),
            Self::Fields { items } => Some(items.len()),
            Self::Paragraph { .. } | Self::Section { .. } | Self::Preformatted { .. } => None,
        }
    }

    fn read(at: &str, value: &Value) -> Result<Self, Invalid> {
        let mut fields = Fields::of(at, value)?;
        let block = match fields.text("kind")? {
            "paragraph" => Self::paragraph(fields.text("text")?),
            "preformatted" => Self::preformatted(fields.text("text")?),
            "section" => Self::section(fields.text("title")?),
            "bullets" => {
                let mut items = Vec::new();
                for item in fields.list("items")? {
                    items.push(
                        item.as_str()
                            .ok_or_else(|| fields.shape("items", "texts are expected"))?,
                    );
                }
                Self::bullets(items)
            }
            "fields" => {
                let mut items = Vec::new();
                for item in fields.list("items")? {
                    let mut item = Fields::of(format!("{at}.items"), item)?;
                    items.push((item.text("label")?, item.text("value")?));
                    item.finish()?;
                }
                Self::fields(items)
            }
            _ => {
                return Err(fields.shape(
                    "kind",
                    "paragraph, section, bullets, fields or preformatted is expected",
                ));
            }
        };
        fields.finish()?;
        Ok(block)
    }
}

impl Presentation {
    /// Normalises and checks what is to be shown.
    ///
    /// # Errors
    ///
    /// [`Invalid`]: a limit with its name and the observed value, a blank text, a control character.
    pub fn new(summary: impl Into<String>, blocks: Vec<Block>) -> Result<Self, Invalid> {
        let mut presentation = Self {
            schema: PRESENTATION_SCHEMA,
            summary: text::normalised(&summary.into()),
            blocks,
        };
        let mut total = text::check(
            &|| "presentation.summary".to_owned(),
            &presentation.summary,
            Lines::One,
        )?;
        let count = u64::try_from(presentation.blocks.len()).unwrap_or(u64::MAX);
        if BLOCKS_MAX < count {
            return Err(Invalid::Limit {
                at: "presentation.blocks".to_owned(),
                limit: Limit::Blocks,
                observed: count,
            });
        }
        for (index, block) in presentation.blocks.iter_mut().enumerate() {
            if let Some(items) = block.items() {
                let observed = u64::try_from(items).unwrap_or(u64::MAX);
                if observed == 0 || ITEMS_MAX < observed {
                    return Err(Invalid::Limit {
                        at: format!("presentation.blocks[{index}].items"),
                        limit: Limit::Items,
                        observed,
                    });
                }
            }
            for (name, shown, lines) in block.texts_mut() {
                *shown = text::normalised(shown);
                total += text::check(
                    &|| format!("presentation.blocks[{index}].{name}"),
                    shown,
                    lines,
                )?;
            }
        }
        if PRESENTATION_UNITS_MAX < total {
            return Err(Invalid::Limit {
                at: "presentation".to_owned(),
                limit: Limit::PresentationUnits,
                observed: total,
            });
        }
        Ok(presentation)
    }

    /// Reads a document. A field that nobody knows is an error.
    ///
    /// # Errors
    ///
    /// [`Invalid`].
    pub fn read(value: &Value) -> Result<Self, Invalid> {
        let mut fields = Fields::of("presentation", value)?;
        fields.exactly(
            "schema",
            PRESENTATION_SCHEMA,
            "another schema than this program knows",
        )?;
        let summary = fields.text("summary")?;
        let list = fields.list("blocks")?;
        // Counted before it is read: what is too long is not worth reading.
        let count = u64::try_from(list.len()).unwrap_or(u64::MAX);
        if BLOCKS_MAX < count {
            return Err(Invalid::Limit {
                at: "presentation.blocks".to_owned(),
                limit: Limit::Blocks,
                observed: count,
            });
        }
        let mut blocks = Vec::with_capacity(list.len());
        for (index, block) in list.iter().enumerate() {
            blocks.push(Block::read(
                &format!("presentation.blocks[{index}]"),
                block,
            )?);
        }
        fields.finish()?;
        Self::new(summary, blocks)
    }

    /// The first line that a person reads.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// The blocks, in their order.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(blocks: &Value) -> Result<Presentation, Invalid> {
        Presentation::read(
            &json!({ "schema": PRESENTATION_SCHEMA, "summary": "s", "blocks": blocks }),
        )
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let presentation = Presentation::new(
            "Ship it?",
            vec![
                Block::section("What"),
                Block::paragraph("one\n\ttwo"),
                Block::bullets(["a", "b"]),
                Block::fields([("cost", "1 €")]),
                Block::preformatted("x  y"),
            ],
        )
        .unwrap();
        let document = serde_json::to_value(&presentation).unwrap();
        assert_eq!(Presentation::read(&document), Ok(presentation));
    }

    #[test]
    fn each_mistake_has_its_error() {
        let long = "x".repeat(16_000);
        let many: Vec<Value> = (0..257)
            .map(|_| json!({ "kind": "paragraph", "text": "p" }))
            .collect();
        let five: Vec<Value> = (0..4)
            .map(|_| json!({ "kind": "paragraph", "text": long }))
            .collect();
        let mut said = Vec::new();
        for blocks in [
            json!(many),
            json!(five),
            json!([{ "kind": "paragraph", "text": format!("{long}x") }]),
            json!([{ "kind": "paragraph", "text": " " }]),
            json!([{ "kind": "section", "title": "a\nb" }]),
            json!([{ "kind": "bullets", "items": [] }]),
            json!([{ "kind": "bullets", "items": vec!["i"; 257] }]),
            json!([{ "kind": "bullets", "items": [1] }]),
            json!([{ "kind": "fields", "items": [{ "label": "l" }] }]),
            json!([{ "kind": "fields", "items": [{ "label": "l", "value": "v", "link": "x" }] }]),
            json!([{ "kind": "paragraph", "text": "p", "style": "bold" }]),
            json!([{ "kind": "image", "text": "p" }]),
            json!(["p"]),
            json!({}),
        ] {
            said.push(read(&blocks).unwrap_err().to_string());
        }
        for document in [
            json!({ "schema": "v2", "summary": "s", "blocks": [] }),
            json!({ "schema": PRESENTATION_SCHEMA, "summary": "\u{1b}[2J", "blocks": [] }),
            json!({ "schema": PRESENTATION_SCHEMA, "summary": "s", "blocks": [], "body": "x" }),
            json!({ "schema": PRESENTATION_SCHEMA, "blocks": [] }),
        ] {
            said.push(Presentation::read(&document).unwrap_err().to_string());
        }
        insta::assert_snapshot!(said.join("\n"), @r#"
        presentation.blocks has 257; the limit is 256 blocks
        presentation has 64001; the limit is 64000 UTF-16 code units in one presentation
        presentation.blocks[0].text has 16001; the limit is 16000 UTF-16 code units in one text
        presentation.blocks[0].text is blank
        presentation.blocks[0].title holds the control character U+000A
        presentation.blocks[0].items has 0; the limit is 1 to 256 items in one list
        presentation.blocks[0].items has 257; the limit is 1 to 256 items in one list
        presentation.blocks[0].items: texts are expected
        presentation.blocks[0].items.value: the field is missing
        presentation.blocks[0].items has the unknown field "link"
        presentation.blocks[0] has the unknown field "style"
        presentation.blocks[0].kind: paragraph, section, bullets, fields or preformatted is expected
        presentation.blocks[0]: an object is expected
        presentation.blocks: a list is expected
        presentation.schema: another schema than this program knows
        presentation.summary holds the control character U+001B
        presentation has the unknown field "body"
        presentation.summary: the field is missing
        "#);
    }
}
