//! The actions of a workflow file: commands and the built-in file actions, with their effects.

use std::sync::Arc;

use holdpoint_state::records::blobs::PAYLOAD_LIMIT_BYTES;
use serde_json::{Value, json};

use super::{Compiler, Result, text};
use crate::definition::value::number_text;
use crate::definition::{
    Action, ActionExecution, EffectRequest, EffectSpec, NodeContext, NodeError, ParseFunction,
    ParseLineFunction, Recovery, ShellAction, ShellUpdates, ValueFunction,
};
use crate::file::builtin;
use crate::file::expression::Environment;
use crate::file::format::{
    EffectDocument, ReadFileDocument, ShellDocument, Template, UpdatesDocument, WriteFileDocument,
};
use crate::shell::{ShellCommand, Stream, Streams};
use crate::updates::Update;

impl Compiler<'_> {
    pub(super) fn effect(
        &self,
        document: EffectDocument,
        default: Option<ValueFunction>,
    ) -> Result<EffectSpec> {
        let request = match document.request {
            None => default.map(EffectRequest::Function),
            Some(Template::Literal(value)) => Some(EffectRequest::Value(value)),
            Some(template) => Some(EffectRequest::Function(self.function(template)?)),
        };
        Ok(EffectSpec {
            effect_type: document.effect_type,
            recovery: document.recovery,
            request,
        })
    }

    pub(super) fn shell(&self, id: &str, document: ShellDocument) -> Result<Action> {
        if document.argv.is_empty() {
            let message = format!("argv of node {id:?} must have the program as its first item");
            return self.refuse(&["nodes", id, "shell", "argv"], "V23", message);
        }
        let argv = document
            .argv
            .into_iter()
            .map(|item| self.prepare(item))
            .collect::<Result<Vec<_>>>()?;
        let cwd = document.cwd.map(|cwd| self.prepare(cwd)).transpose()?;
        let env = document
            .env
            .0
            .into_iter()
            .map(|(name, value)| Ok((name, self.prepare(value)?)))
            .collect::<Result<Vec<_>>>()?;
        let parse = document
            .parse
            .map(|parse| self.prepare(parse))
            .transpose()?;
        let updates = document
            .updates
            .map(|updates| self.updates(id, updates))
            .transpose()?;
        let effect = self.effect(document.effect, None)?;
        let allow_non_zero_exit = document.allow_non_zero_exit;
        let max_output_chars = document
            .max_output_chars
            .map(|chars| usize::try_from(chars).unwrap_or(usize::MAX));
        if max_output_chars.is_some_and(|chars| PAYLOAD_LIMIT_BYTES < chars) {
            // More could never be stored, so that the node would act and then fail.
            let message =
                format!("maxOutputChars of node {id:?} must be at most {PAYLOAD_LIMIT_BYTES}");
            return self.refuse(&["nodes", id, "shell", "maxOutputChars"], "V23", message);
        }

        let exec = move |context: &NodeContext<'_>| {
            let mut items = Vec::new();
            for item in &argv {
                arguments(item.in_context(context)?, &mut items)?;
            }
            let mut items = items.into_iter();
            let program = items
                .next()
                .ok_or_else(|| NodeError::new("argv has no program"))?;
            let mut command = ShellCommand::new(program).args(items);
            command.allow_non_zero_exit = allow_non_zero_exit;
            if let Some(chars) = max_output_chars {
                command.max_output_chars = chars;
            }
            if let Some(cwd) = &cwd {
                command = command.cwd(text("cwd", cwd.in_context(context)?)?);
            }
            for (name, value) in &env {
                command = command.env(name, argument(value.in_context(context)?)?);
            }
            Ok(command)
        };
        let shell = ShellAction {
            exec: Arc::new(exec),
            parse: parse.map(|parse| -> ParseFunction {
                Arc::new(move |context, result| {
                    let dot = serde_json::to_value(result)?;
                    parse.value(&|| Environment::of(context).with_dot(dot.clone()))
                })
            }),
            updates,
        };
        Ok(Action {
            execution: ActionExecution::Shell(shell),
            effect,
        })
    }

    fn updates(&self, id: &str, document: UpdatesDocument) -> Result<ShellUpdates> {
        let has = |stream| document.streams.contains(&stream);
        let streams = match (
            has(Stream::Stdout),
            has(Stream::Stderr),
            document.streams.len(),
        ) {
            (true, false, 1) => Streams::Stdout,
            (false, true, 1) => Streams::Stderr,
            (true, true, 2) => Streams::Both,
            _ => {
                let message =
                    format!("streams of node {id:?} must name stdout, stderr or both, each once");
                return self.refuse(
                    &["nodes", id, "shell", "updates", "streams"],
                    "V23",
                    message,
                );
            }
        };
        let parse = self.prepare(document.parse_line)?;
        let parse_line: ParseLineFunction = Arc::new(move |context, stream, line| {
            let dot = json!({ "line": line, "stream": stream });
            match parse.value(&|| Environment::of(context).with_dot(dot.clone()))? {
                Value::Null => Ok(Vec::new()),
                Value::Array(updates) => updates.iter().map(Update::from_value).collect(),
                update => Ok(vec![Update::from_value(&update)?]),
            }
        });
        Ok(ShellUpdates {
            streams,
            parse_line,
        })
    }

    pub(super) fn write_file(&self, document: WriteFileDocument) -> Result<Action> {
        let path = self.prepare(document.path)?;
        let content = self.prepare(document.content)?;
        let (of_path, of_content) = (path.clone(), content.clone());
        let request: ValueFunction = Arc::new(move |context| {
            Ok(json!({
                "path": of_path.in_context(context)?,
                "content": of_content.in_context(context)?,
            }))
        });
        let effect = self.file_effect(document.effect, "file.write", request)?;
        let run: ValueFunction = Arc::new(move |context| {
            let path = text("path", path.in_context(context)?)?;
            let content = content.in_context(context)?;
            context.cancellation.check()?;
            builtin::write_file(&path, &content)
        });
        Ok(Action {
            execution: ActionExecution::Function(run),
            effect,
        })
    }

    pub(super) fn read_file(&self, document: ReadFileDocument) -> Result<Action> {
        let path = self.prepare(document.path)?;
        let of_path = path.clone();
        let request: ValueFunction =
            Arc::new(move |context| Ok(json!({ "path": of_path.in_context(context)? })));
        let effect = self.file_effect(document.effect, "file.read", request)?;
        let run: ValueFunction =
            Arc::new(move |context| builtin::read_file(&text("path", path.in_context(context)?)?));
        Ok(Action {
            execution: ActionExecution::Function(run),
            effect,
        })
    }

    pub(super) fn file_effect(
        &self,
        document: Option<EffectDocument>,
        effect_type: &str,
        request: ValueFunction,
    ) -> Result<EffectSpec> {
        match document {
            Some(document) => self.effect(document, Some(request)),
            None => Ok(EffectSpec {
                effect_type: effect_type.to_owned(),
                recovery: Recovery::Idempotent,
                request: Some(EffectRequest::Function(request)),
            }),
        }
    }
}

/// Arguments of a command from one item of `argv`: a list gives one for each of its items.
fn arguments(value: Value, into: &mut Vec<String>) -> std::result::Result<(), NodeError> {
    match value {
        Value::Array(items) => {
            for item in items {
                into.push(argument(item)?);
            }
        }
        one => into.push(argument(one)?),
    }
    Ok(())
}

fn argument(value: Value) -> std::result::Result<String, NodeError> {
    match value {
        Value::String(text) if text.contains('\0') => Err(NodeError::new(
            "an argument of a command can't have a NUL character",
        )),
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number_text(&number)),
        Value::Bool(flag) => Ok(flag.to_string()),
        other @ (Value::Null | Value::Array(_) | Value::Object(_)) => Err(NodeError::new(format!(
            "an argument of a command must be a text, number or boolean, not {other}"
        ))),
    }
}
