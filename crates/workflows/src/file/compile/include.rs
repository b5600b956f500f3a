//! Includes and exits of a workflow file.

use serde_json::{Map, Value};

use super::{Compiler, Result};
use crate::definition::{
    DefinitionError, ExitDraft, IncludeDraft, IncludeProblem, IncludedWorkflow, Referrer,
};
use crate::file::error::Problem;
use crate::file::format::{ExitDocument, IncludeDocument, Ordered, Template};
use crate::file::library::LoadError;

impl Compiler<'_> {
    /// Finds what an include names. A mistake in a file that is included is told with its own place.
    pub(super) fn include(
        &self,
        workflow: &str,
        name: String,
        document: IncludeDocument,
    ) -> Result<IncludeDraft> {
        let load = |member: &str, reference: &str| -> Result<IncludedWorkflow> {
            if reference.trim().is_empty() {
                let include = name.clone();
                let at = self.tree.locate(["includes", &name, member]);
                let error = DefinitionError::IncludeWorkflow { include };
                return Err((at, Problem::Definition(error)));
            }
            let referrer = Referrer {
                workflow,
                source: self.source,
            };
            match self.loader.load(reference, &referrer) {
                Ok((definition, source)) => Ok(IncludedWorkflow::Found(definition, source)),
                Err(LoadError::File(error)) => Err((error.position, Problem::Included(error))),
                Err(LoadError::Reference(problem)) => Err((
                    self.tree.locate(["includes", &name, member]),
                    Problem::Definition(refused(&name, problem)),
                )),
            }
        };
        let included = load("workflow", &document.workflow)?;
        let contract = document
            .contract
            .map(|reference| load("contract", &reference))
            .transpose()?;
        let mapped = |template: Option<Template>| {
            template.map(|template| self.function(template)).transpose()
        };
        let (input, settings) = (mapped(document.input)?, mapped(document.settings)?);
        let declared = self.declared_members("includes", &name, &["input", "settings"]);
        Ok(IncludeDraft {
            name,
            workflow: included,
            input,
            settings,
            contract,
            declared,
        })
    }

    pub(super) fn exits(&self, exits: Option<Ordered<ExitDocument>>) -> Result<Vec<ExitDraft>> {
        let Some(Ordered(exits)) = exits else {
            return Ok(Vec::new());
        };
        if exits.is_empty() {
            let message = "exits must have at least one exit; leave it out when there is none";
            return self.refuse(&["exits"], "V32", message.to_owned());
        }
        let exit = |(name, document): (String, ExitDocument)| {
            let path = ["exits", name.as_str(), "validate"];
            let validate = document
                .validate
                .map(|validate| self.validation(&path, "V32", &validate))
                .transpose()?;
            let declared = self
                .declared_members("exits", &name, &["validate"])
                .and_then(|mut members| members.as_object_mut()?.remove("validate"));
            Ok(ExitDraft {
                name,
                from: document.from,
                validate,
                declared,
            })
        };
        exits.into_iter().map(exit).collect()
    }

    /// Members of an entry as they are in the file; `None` when it has none of them.
    fn declared_members(&self, block: &str, name: &str, members: &[&str]) -> Option<Value> {
        let root = self.tree.root()?;
        let entry = self.tree.child(self.tree.child(root, block)?, name)?;
        let declared: Map<String, Value> = members
            .iter()
            .filter_map(|member| {
                let index = self.tree.child(entry, member)?;
                Some(((*member).to_owned(), self.tree.value(index)))
            })
            .collect();
        (!declared.is_empty()).then_some(Value::Object(declared))
    }
}

fn refused(include: &str, problem: IncludeProblem) -> DefinitionError {
    DefinitionError::Include {
        include: include.to_owned(),
        problem: Box::new(problem),
    }
}
