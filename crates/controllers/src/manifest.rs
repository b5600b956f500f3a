//! Files that say which resources there shall be: `NAME.resource.yaml`, or JSON.
//!
//! A document is one resource, or a list of them; a YAML file may have several documents. Each mistake is told with its line and column.
//!
//! ```yaml
//! controller: file-set
//! key: site
//! spec:
//!   directory: public
//!   files:
//!     - { path: index.html, content: "<h1>Hello</h1>\n" }
//! ```
//!
//! A controller that the reader knows has a schema for its spec; the spec of another one is taken as it is. Not here: writing anything.

use std::collections::BTreeMap;
use std::path::Path;

use holdpoint_workflows::file::{Document, FileError, Position, Syntax};
use serde_json::{Value, json};

use crate::error::ControllerError;
use crate::model::{self, ControllerName, DOCUMENT_BYTES_MAX, Invalid, Key};

/// How large a file may be, in bytes.
pub const FILE_MAX_BYTES: usize = 16 * 1024 * 1024;

/// A check of what a schema can't say: a JSON Pointer into the spec, and what is wrong there.
pub type SpecCheck = fn(&Value) -> Result<(), (String, String)>;

/// What is known of a controller without running it.
#[derive(Debug, Clone)]
pub struct KnownController {
    /// Its name.
    pub name: ControllerName,
    /// The JSON Schema of its specs, in one piece: references are not followed.
    pub schema: Value,
    /// What the schema can't say.
    pub check: Option<SpecCheck>,
}

/// One resource as a file wants it.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Its controller.
    pub controller: ControllerName,
    /// Its key.
    pub key: Key,
    /// What is wanted.
    pub spec: Value,
    /// Where it stands in the file.
    pub position: Position,
}

/// Reads the resources of a file, in their order.
///
/// ```
/// use holdpoint_controllers::manifest;
///
/// let text = b"controller: lamp\nkey: hall\nspec: { watts: 40 }\n---\ncontroller: lamp\nkey: \"\"\nspec: {}\n";
/// let error = manifest::read("lamps.resource.yaml", text, &[]).unwrap_err();
/// assert_eq!((error.position.line, error.position.column), (6, 6));
/// ```
///
/// # Errors
///
/// [`FileError`] with the place of the first mistake.
pub fn read(
    path: impl AsRef<Path>,
    bytes: &[u8],
    known: &[KnownController],
) -> Result<Vec<Manifest>, FileError> {
    let path = path.as_ref();
    let documents = Document::read_all(path, bytes, Syntax::of(path, bytes))?;
    let mut found = Vec::new();
    let mut first = BTreeMap::new();
    for document in &documents {
        let ways: Vec<Vec<String>> = match document.value() {
            Value::Array(items) => (0..items.len())
                .map(|index| vec![index.to_string()])
                .collect(),
            _ => vec![Vec::new()],
        };
        for way in ways {
            let way: Vec<&str> = way.iter().map(String::as_str).collect();
            let manifest = one(document, &way, known)?;
            let name = (manifest.controller.clone(), manifest.key.clone());
            if let Some(before) = first.insert(name, manifest.position) {
                let problem = format!(
                    "{}/{} is there twice, first at {before}; keep one of the two",
                    manifest.controller, manifest.key
                );
                return Err(document.error(&[&way[..], &["key"]].concat(), problem));
            }
            found.push(manifest);
        }
    }
    if found.is_empty() {
        return Err(nothing(path));
    }
    Ok(found)
}

fn nothing(path: &Path) -> FileError {
    FileError {
        path: path.to_path_buf(),
        position: Position { line: 1, column: 1 },
        problem: holdpoint_workflows::file::Problem::Syntax {
            message: "there is no resource in it".to_owned(),
        },
    }
}

fn one(
    document: &Document,
    way: &[&str],
    known: &[KnownController],
) -> Result<Manifest, FileError> {
    document.check(way, &resource_schema())?;
    let value = document.value();
    let value = way.iter().fold(&value, |value, step| match value {
        Value::Array(items) => step
            .parse::<usize>()
            .ok()
            .and_then(|index| items.get(index))
            .unwrap_or(&Value::Null),
        other => other,
    });
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let member = |name: &'static str| [way, &[name]].concat();
    let named =
        |name: &'static str, invalid: &Invalid| document.error(&member(name), invalid.to_string());
    let controller =
        ControllerName::new(text("controller")).map_err(|invalid| named("controller", &invalid))?;
    let key = Key::new(text("key")).map_err(|invalid| named("key", &invalid))?;
    let spec = value.get("spec").cloned().unwrap_or_default();
    // Here, and not only when it is written: a mistake in one resource leaves all of the file alone.
    if let Err(ControllerError::Invalid(invalid)) =
        model::limited("spec", &spec, DOCUMENT_BYTES_MAX)
    {
        return Err(named("spec", &invalid));
    }
    if let Some(known) = known.iter().find(|known| known.name == controller) {
        document.check(&member("spec"), &known.schema)?;
        if let Some(check) = known.check {
            check(&spec).map_err(|(pointer, problem)| {
                document.error_at(&member("spec"), &pointer, &problem)
            })?;
        }
    }
    Ok(Manifest {
        controller,
        key,
        spec,
        position: document.position(way),
    })
}

fn resource_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "$schema": { "type": "string" },
            "controller": { "type": "string", "description": "The controller that makes the world match the spec." },
            "key": { "type": "string", "minLength": 1, "maxLength": 512, "description": "Names the resource within its project and controller." },
            "spec": { "description": "What is wanted; its shape is the controller's." },
        },
        "required": ["controller", "key", "spec"],
        "additionalProperties": false,
    })
}

/// The JSON Schema (draft 2020-12) of these files, for editors: with the specs of the controllers that are known.
pub fn json_schema(known: &[KnownController]) -> Value {
    let mut resource = resource_schema();
    let specs: Vec<Value> = known
        .iter()
        .map(|known| {
            json!({
                "if": { "properties": { "controller": { "const": known.name } }, "required": ["controller"] },
                "then": { "properties": { "spec": known.schema } },
            })
        })
        .collect();
    if let Some(members) = resource.as_object_mut().filter(|_| !specs.is_empty()) {
        members.insert("allOf".to_owned(), Value::Array(specs));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Holdpoint resource",
        "description": "A managed resource, or a list of them.",
        "anyOf": [{ "$ref": "#/$defs/Resource" }, { "type": "array", "items": { "$ref": "#/$defs/Resource" } }],
        "$defs": { "Resource": resource },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_set;

    fn told(name: &str, text: &str) -> String {
        match read(name, text.as_bytes(), &[file_set::known().unwrap()]) {
            Ok(found) => {
                let line = |manifest: &Manifest| {
                    let (at, controller) = (manifest.position, &manifest.controller);
                    format!("{at}: {controller}/{} {}", manifest.key, manifest.spec)
                };
                found.iter().map(line).collect::<Vec<_>>().join("\n") + "\n"
            }
            Err(error) => format!("{error}\n"),
        }
    }

    #[test]
    fn resources_are_read_from_either_syntax() {
        let yaml = "# First.\ncontroller: lamp\nkey: hall\nspec: { watts: 40 }\n---\n- controller: lamp\n  key: room\n  spec: 1\n- { controller: lamp, key: cellar, spec: null }\n---\n";
        let json = r#" [{"$schema": "x", "controller": "lamp", "key": "hall", "spec": {}}]"#;
        insta::assert_snapshot!(told("-", yaml) + &told("-", json) + &told("a.json", json), @r#"
        2:1: lamp/hall {"watts":40}
        6:3: lamp/room 1
        9:3: lamp/cellar null
        1:3: lamp/hall {}
        1:3: lamp/hall {}
        "#);
    }

    #[test]
    fn mistakes_have_their_places() {
        let head = "controller: file-set\nkey: site\nspec:\n";
        let with = |rest: &str| format!("{head}{rest}");
        let mut all = String::new();
        for text in [
            String::new(),
            "---\n".to_owned(),
            "just a text\n".to_owned(),
            "controller: lamp\nkey: hall\n".to_owned(),
            "controler: lamp\nkey: hall\nspec: 1\n".to_owned(),
            "controller: Lamp\nkey: hall\nspec: 1\n".to_owned(),
            "controller: lamp\nkey: ' '\nspec: 1\n".to_owned(),
            "controller: lamp\nkey: \"a\\0b\"\nspec: 1\n".to_owned(),
            "controller: lamp\nkey: 7\nspec: 1\n".to_owned(),
            format!(
                "- {{ controller: lamp, key: a, spec: 1 }}\n- controller: lamp\n  key: b\n  spec: {}\n",
                "x".repeat(DOCUMENT_BYTES_MAX)
            ),
            "controller: lamp\nkey: a\nspec: &x 1\n".to_owned(),
            "controller: lamp\nkey: a\nspec: 1\n---\ncontroller: lamp\nkey: a\nspec: 2\n"
                .to_owned(),
            with("  directory: out\n"),
            with("  directory: out\n  files: [{ pth: a, content: '' }]\n"),
            with("  directory: ../out\n  files: []\n"),
            with(
                "  directory: out\n  files:\n    - path: a\n      content: ''\n    - path: b/../c\n      content: ''\n",
            ),
            with("  directory: out\n  files: []\n  prune: some\n"),
            with("  directory: out\n  files: []\n  recheckAfterMs: 1\n"),
        ] {
            all += &told("site.resource.yaml", &text);
        }
        all += &told(
            "site.json",
            "{\n  \"controller\": \"lamp\",\n  \"key\": \"a\", \"key\": \"b\", \"spec\": 1 }",
        );
        insta::assert_snapshot!(all, @r#"
        site.resource.yaml:1:1: there is no resource in it
        site.resource.yaml:1:1: there is no resource in it
        site.resource.yaml:1:1: the value must be of type object, not "just a text"
        site.resource.yaml:1:1: the value lacks the member "spec"
        site.resource.yaml:1:12: /controler must not be there; did you mean "controller"?
        site.resource.yaml:1:13: a controller name is a lower-case letter and then lower-case letters, digits and dashes, 512 characters at most
        site.resource.yaml:2:6: a resource key is 1 to 512 characters without NUL, not all of them blank
        site.resource.yaml:2:6: a resource key is 1 to 512 characters without NUL, not all of them blank
        site.resource.yaml:2:6: /key must be of type string, not 7
        site.resource.yaml:4:9: the spec has 1048578 bytes; 1048576 are allowed
        site.resource.yaml:3:10: the file can't have an anchor; write the value where it is used
        site.resource.yaml:6:6: lamp/a is there twice, first at 1:1; keep one of the two
        site.resource.yaml:4:3: the value lacks the member "files"
        site.resource.yaml:5:18: /files/0/pth must not be there; did you mean "path"?
        site.resource.yaml:4:14: /directory must be a relative path that goes down only, without `.`, `..` and doubled slashes
        site.resource.yaml:8:13: /files/1/path must be a relative path that goes down only, without `.`, `..` and doubled slashes
        site.resource.yaml:6:10: /prune must be one of "managed", "never", "everything", not "some"
        site.resource.yaml:6:19: /recheckAfterMs must be at least 100
        site.json:3:15: key "key" is there twice, first at 3:3; keep one of the two
        "#);
    }

    #[test]
    fn the_example_is_read() {
        let example = include_str!("../../../examples/site.resource.yaml");
        let told = told("site.resource.yaml", example);
        assert!(told.starts_with("3:1: file-set/site {"), "{told}");
    }

    #[test]
    fn the_schema_knows_the_specs() {
        let schema = json_schema(&[file_set::known().unwrap()]);
        let then = &schema["$defs"]["Resource"]["allOf"][0]["then"]["properties"]["spec"];
        assert_eq!(then, &file_set::spec::schema());
    }
}
