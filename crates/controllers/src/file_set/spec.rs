//! What a person declares: a directory, its files, and what is done about files that are there already.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The file that says whose directory it is.
pub(crate) const MARKER: &str = ".holdpoint-file-set.json";
/// How many files one set may have.
pub const FILES_MAX: usize = 500;
/// How long a path may be, in bytes.
pub const PATH_MAX_BYTES: usize = 1_024;
/// How long each name of a path may be: what a file system takes, less what a temporary name adds.
pub const NAME_MAX_BYTES: usize = 200;
/// How often drift is looked for by default.
const RECHECK_AFTER_MS: u64 = 60_000;

/// The wanted state of a directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "File set")]
pub struct FileSetSpec {
    /// The directory, relative to the project: its own, since one directory belongs to one resource.
    #[schemars(length(min = 1, max = 1024))]
    pub directory: String,
    /// The files that are to be in it.
    #[schemars(length(max = 500))]
    pub files: Vec<FileSpec>,
    /// What is done about a declared file that is there already and that the resource did not write.
    #[serde(default)]
    pub existing: Existing,
    /// What is done about files that are not declared: those that the resource wrote, or all of them.
    #[serde(default)]
    pub prune: Prune,
    /// What is done about files that somebody else changed since the resource wrote them.
    #[serde(default)]
    pub drift: Drift,
    /// How often the directory is looked at when nothing else happens, in milliseconds.
    #[serde(default = "recheck_after_ms")]
    #[schemars(range(min = 100, max = 86_400_000))]
    pub recheck_after_ms: u64,
}

/// One file: its path, and either its content or the workflow that makes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileSpec {
    /// The path, relative to the directory.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// The content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The run whose output is the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<FromWorkflow>,
}

/// A run whose output is the content of a file: a text as it is, anything else as indented JSON. It is asked for once; another input is
/// another run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FromWorkflow {
    /// The workflow, by its name, or a path relative to the project.
    #[schemars(length(min = 1, max = 512))]
    pub workflow: String,
    /// Its input.
    #[serde(default = "no_input")]
    pub input: Value,
}

/// What is done about a declared file that is there already and that the resource did not write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Existing {
    /// It stays as it is. With the declared content it counts as right, and is never removed either; otherwise the resource is not ready.
    #[default]
    Keep,
    /// It is overwritten, and from then on it belongs to the resource.
    Replace,
}

/// What is done about files that are not declared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Prune {
    /// Those that the resource wrote are removed, unless somebody else changed them; others stay.
    #[default]
    Managed,
    /// They stay, also when the resource is deleted.
    Never,
    /// Whatever else is in the directory is removed too, whoever wrote it, until the resource is deleted; only ordinary files.
    Everything,
}

/// What is done about files that somebody else changed since the resource wrote them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Drift {
    /// They are written again.
    #[default]
    Repair,
    /// They stay, and the resource is not ready.
    Report,
}

fn recheck_after_ms() -> u64 {
    RECHECK_AFTER_MS
}

fn no_input() -> Value {
    json!({})
}

/// The JSON Schema of a spec.
pub fn schema() -> Value {
    // In one piece: whoever checks values by it follows no references.
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings
        .into_generator()
        .into_root_schema_for::<FileSetSpec>()
        .to_value()
}

/// A mistake that a schema can't see: a JSON Pointer to it, and what is wrong.
pub type Mistake = (String, String);

impl FileSetSpec {
    /// Checks what a schema can't see: paths that go down only and don't collide, and one source for each file.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub fn check(&self) -> Result<(), Mistake> {
        path(&self.directory).map_err(|problem| ("/directory".to_owned(), problem))?;
        if FILES_MAX < self.files.len() {
            let problem = format!("has {} files; {FILES_MAX} are the most", self.files.len());
            return Err(("/files".to_owned(), problem));
        }
        let mut paths = BTreeSet::new();
        for (index, file) in self.files.iter().enumerate() {
            let at = format!("/files/{index}");
            path(&file.path).map_err(|problem| (format!("{at}/path"), problem))?;
            if !paths.insert(file.path.as_str()) {
                return Err((
                    format!("{at}/path"),
                    format!("names {:?} a second time", file.path),
                ));
            }
            match (&file.content, &file.from) {
                (Some(_), None) | (None, Some(_)) => {}
                _ => return Err((at, "must have either content or from".to_owned())),
            }
        }
        for (index, file) in self.files.iter().enumerate() {
            let above = Path::new(&file.path)
                .ancestors()
                .skip(1)
                .filter_map(Path::to_str);
            if let Some(above) = above.into_iter().find(|above| paths.contains(above)) {
                let problem = format!("lies beneath {above:?}, which is a file of this set");
                return Err((format!("/files/{index}/path"), problem));
            }
        }
        Ok(())
    }
}

/// Whether a text is a path that goes down only, in its one spelling.
fn path(text: &str) -> Result<(), String> {
    let names: Vec<&str> = text.split('/').collect();
    let goes_down = Path::new(text)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if !goes_down || names.iter().any(|name| matches!(*name, "" | "." | "..")) {
        return Err(
            "must be a relative path that goes down only, without `.`, `..` and doubled slashes"
                .to_owned(),
        );
    }
    if text.chars().any(char::is_control) {
        return Err("must not have control characters".to_owned());
    }
    if PATH_MAX_BYTES < text.len() || names.iter().any(|name| NAME_MAX_BYTES < name.len()) {
        return Err(format!(
            "is longer than {PATH_MAX_BYTES} bytes, or {NAME_MAX_BYTES} in one name"
        ));
    }
    if names.contains(&MARKER) {
        return Err(format!(
            "must not name {MARKER:?}, which says whose directory it is"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(directory: &str, files: &Value) -> FileSetSpec {
        serde_json::from_value(json!({ "directory": directory, "files": files })).unwrap()
    }

    #[test]
    fn paths_stay_inside_and_do_not_collide() {
        let file = |path: &str| json!({ "path": path, "content": "" });
        let long = "a".repeat(NAME_MAX_BYTES + 1);
        let mut told = String::new();
        for (directory, files) in [
            (
                "out",
                json!([file("a"), file("b/c"), file("b/d"), file("ab")]),
            ),
            ("..", json!([])),
            ("/srv", json!([])),
            ("", json!([])),
            (".", json!([])),
            ("out/", json!([])),
            ("out", json!([file("../a")])),
            ("out", json!([file("a/../b")])),
            ("out", json!([file("a//b")])),
            ("out", json!([file("./a")])),
            ("out", json!([file("/etc/passwd")])),
            ("out", json!([file("a\0b")])),
            ("out", json!([file("a\nb")])),
            ("out", json!([file(&long)])),
            ("out", json!([file("sub/.holdpoint-file-set.json")])),
            ("out", json!([file("a"), file("a")])),
            ("out", json!([file("a/b/c"), file("a")])),
            ("out", json!([{ "path": "a" }])),
            (
                "out",
                json!([{ "path": "a", "content": "", "from": { "workflow": "w" } }]),
            ),
        ] {
            let found = spec(directory, &files).check();
            let found = found.map_or_else(
                |(at, problem)| format!("{at} {problem}"),
                |()| "ok".to_owned(),
            );
            told.push_str(&found);
            told.push('\n');
        }
        insta::assert_snapshot!(told, @r#"
        ok
        /directory must be a relative path that goes down only, without `.`, `..` and doubled slashes
        /directory must be a relative path that goes down only, without `.`, `..` and doubled slashes
        /directory must be a relative path that goes down only, without `.`, `..` and doubled slashes
        /directory must be a relative path that goes down only, without `.`, `..` and doubled slashes
        /directory must be a relative path that goes down only, without `.`, `..` and doubled slashes
        /files/0/path must be a relative path that goes down only, without `.`, `..` and doubled slashes
        /files/0/path must be a relative path that goes down only, without `.`, `..` and doubled slashes
        /files/0/path must be a relative path that goes down only, without `.`, `..` and doubled slashes
        /files/0/path must be a relative path that goes down only, without `.`, `..` and doubled slashes
        /files/0/path must be a relative path that goes down only, without `.`, `..` and doubled slashes
        /files/0/path must not have control characters
        /files/0/path must not have control characters
        /files/0/path is longer than 1024 bytes, or 200 in one name
        /files/0/path must not name ".holdpoint-file-set.json", which says whose directory it is
        /files/1/path names "a" a second time
        /files/0/path lies beneath "a", which is a file of this set
        /files/0 must have either content or from
        /files/0 must have either content or from
        "#);
    }

    #[test]
    fn what_is_left_out_is_careful() {
        let spec = spec("out", &json!([]));
        assert_eq!(
            (spec.existing, spec.prune, spec.drift, spec.recheck_after_ms),
            (Existing::Keep, Prune::Managed, Drift::Repair, 60_000)
        );
    }

    #[test]
    fn the_schema_is_in_one_piece() {
        let schema = schema();
        assert!(!schema.to_string().contains("$ref"));
        insta::assert_json_snapshot!(schema);
    }
}
