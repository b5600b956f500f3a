//! Puts the graphs of included workflows under their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{ENTRY_SCHEMA, EXIT_PREFIX, Exit, IncludeTransition, Included, Mount, NODES_MAX};
use crate::definition::context::NodeError;
use crate::definition::edge::Route;
use crate::definition::node::{Compute, Node, NodeKind, Timeout, ValueFunction};
use crate::definition::{Definition, DefinitionError};
use crate::id::NodeId;
use crate::settings::SettingsDefinition;

/// A graph that grows.
pub(in crate::definition) struct Graph<'g> {
    pub(in crate::definition) nodes: &'g mut BTreeMap<NodeId, Node>,
    pub(in crate::definition) routes: &'g mut BTreeMap<NodeId, Route>,
    pub(in crate::definition) settings: &'g mut BTreeMap<String, SettingsDefinition>,
    pub(in crate::definition) mounts: &'g mut BTreeMap<NodeId, Mount>,
}

/// Adds the graph of each include to that of its parent.
pub(in crate::definition) fn flatten(
    graph: &mut Graph<'_>,
    includes: Vec<Included>,
) -> Result<(), DefinitionError> {
    let parts = |child: &Definition| child.nodes().len() + child.0.exits.len() + 1;
    let nodes = includes.iter().fold(graph.nodes.len(), |sum, include| {
        sum.saturating_add(parts(&include.definition))
    });
    if NODES_MAX < nodes {
        return Err(DefinitionError::TooLarge { nodes });
    }
    for include in includes {
        mount(graph, include)?;
    }
    Ok(())
}

fn mount(graph: &mut Graph<'_>, include: Included) -> Result<(), DefinitionError> {
    let child = include.definition.clone();
    let name = include.name.clone();
    let under = |id: &NodeId| qualified(&name, id.as_str());
    let path = qualified_path(&name)?;

    for (id, node) in child.nodes() {
        let id = under(id)?;
        graph.nodes.insert(id.clone(), Node { id, ..node.clone() });
    }
    for (from, route) in child.routes() {
        graph
            .routes
            .insert(under(from)?, route_under(&name, route)?);
    }
    for (inner, mounted) in child.mounts() {
        let exits = mounted
            .exits
            .iter()
            .map(|(exit, node)| Ok((exit.clone(), under(node)?)))
            .collect::<Result<_, DefinitionError>>()?;
        let mounted = Mount {
            start_at: under(&mounted.start_at)?,
            exits,
            ..mounted.clone()
        };
        graph.mounts.insert(under(inner)?, mounted);
    }
    for (inner, settings) in &child.0.settings {
        let path = if inner.is_empty() {
            name.clone()
        } else {
            format!("{name}/{inner}")
        };
        graph.settings.insert(path, settings.clone());
    }

    let start_at = under(child.start_at())?;
    graph
        .routes
        .insert(path.clone(), Route::To(start_at.clone()));
    let mut exits = BTreeMap::new();
    for (exit, leaving) in &child.0.exits {
        let id = qualified(&name, &format!("{EXIT_PREFIX}{exit}"))?;
        graph
            .routes
            .insert(under(&leaving.from)?, Route::To(id.clone()));
        graph
            .nodes
            .insert(id.clone(), exit_node(id.clone(), exit, leaving));
        exits.insert(exit.clone(), id);
    }
    let mounted = Mount {
        workflow: child.name().to_owned(),
        start_at,
        exits,
        max_steps: child.0.max_steps,
        source: include.source.clone(),
    };
    graph.mounts.insert(path.clone(), mounted);
    graph.nodes.insert(path.clone(), entry_node(path, include));
    Ok(())
}

/// The node that enters an include: it makes the child's input in the context of the parent.
fn entry_node(id: NodeId, include: Included) -> Node {
    let Included {
        definition: child,
        input,
        settings,
        declared,
        ..
    } = include;
    let mut members = Map::new();
    if let Some(Value::Object(declared)) = declared {
        members.extend(declared);
    }
    if let Some(normalize) = &child.0.declared_input {
        members.insert("normalize".to_owned(), normalize.clone());
    }
    let run: ValueFunction = Arc::new(move |context| {
        let given = match &input {
            Some(input) => input(context)?,
            None => context.input.clone(),
        };
        let normalized = child.normalize_input(given).map_err(|error| {
            NodeError::named(
                error.name(),
                format!("input of workflow {:?}: {}", child.name(), error.message()),
            )
        })?;
        let mut entry = json!({
            "schema": ENTRY_SCHEMA,
            "invocation": context.visit,
            "input": normalized,
        });
        if let (Some(own), Some(entry)) = (child.settings(""), entry.as_object_mut()) {
            let begun = match &settings {
                Some(settings) => own.begin(&settings(context)?)?,
                None => own.initial().clone(),
            };
            entry.insert("settings".to_owned(), begun);
        }
        Ok(entry)
    });
    transition_node(id, IncludeTransition::Entry, run, members)
}

/// The node that leaves an include: it gives the exit's name with what the child's last node gave.
fn exit_node(id: NodeId, name: &str, exit: &Exit) -> Node {
    let mut members = Map::new();
    if let Some(validate) = &exit.declared {
        members.insert("validate".to_owned(), validate.clone());
    }
    let (name, from, validate) = (name.to_owned(), exit.from.clone(), exit.validate.clone());
    let run: ValueFunction = Arc::new(move |context| {
        let output = context.output::<Value>(from.as_str())?;
        let output = match &validate {
            Some(validate) => validate(context, output)?,
            None => output,
        };
        Ok(json!({ "exit": name, "output": output }))
    });
    transition_node(id, IncludeTransition::Exit, run, members)
}

fn transition_node(
    id: NodeId,
    transition: IncludeTransition,
    run: ValueFunction,
    declared: Map<String, Value>,
) -> Node {
    Node {
        id,
        kind: NodeKind::Compute(Compute {
            run,
            settings_route: false,
        }),
        timeout: Timeout::Default,
        status_detail: None,
        declared: (!declared.is_empty()).then_some(Value::Object(declared)),
        transition: Some(transition),
    }
}

fn route_under(name: &str, route: &Route) -> Result<Route, DefinitionError> {
    Ok(match route {
        Route::To(node) => Route::To(qualified(name, node.as_str())?),
        Route::Switch { on, cases } => Route::Switch {
            on: on.clone(),
            cases: cases
                .iter()
                .map(|(case, node)| Ok((case.clone(), qualified(name, node.as_str())?)))
                .collect::<Result<_, DefinitionError>>()?,
        },
    })
}

fn qualified(name: &str, id: &str) -> Result<NodeId, DefinitionError> {
    qualified_path(&format!("{name}/{id}"))
}

/// The parts were checked, so that what they make has the form of an id.
fn qualified_path(id: &str) -> Result<NodeId, DefinitionError> {
    NodeId::new(id).map_err(|error| DefinitionError::NodeIdForm { node: error.text })
}
