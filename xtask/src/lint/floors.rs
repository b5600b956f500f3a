//! The crate graph: each crate stands on lower floors only, and a new edge is a diff.
//!
//! Read from `cargo metadata` with all features, so that an optional dependency counts. Normal, build
//! and dev dependencies are told apart: a dev dependency may stay on its floor, never go up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cargo_metadata::{DependencyKind, Package, PackageId};

use super::finding::Finding;
use super::glob;
use super::rules::Rule;
use super::{LintError, Workspace};

/// The rules of the crate graph.
///
/// # Errors
///
/// [`LintError::Read`] when the golden file exists and can't be read.
pub fn check(workspace: &Workspace) -> Result<Vec<Finding>, LintError> {
    let mut findings = floors(workspace);
    findings.extend(only(workspace));
    findings.extend(above(workspace));
    findings.extend(golden(workspace)?);
    Ok(findings)
}

/// The crate graph as the golden file has it: one edge a line.
pub fn graph(workspace: &Workspace) -> String {
    let edges: BTreeSet<String> = workspace
        .packages()
        .into_iter()
        .flat_map(|package| {
            package.dependencies.iter().map(|dependency| {
                format!(
                    "{} -> {} ({})",
                    package.name,
                    dependency.name,
                    kind_name(dependency.kind)
                )
            })
        })
        .collect();
    let mut text = String::from(
        "# The edges of the crate graph. `cargo xtask lint --bless` writes this file; read its diff.\n",
    );
    for edge in edges {
        text.push_str(&edge);
        text.push('\n');
    }
    text
}

/// Writes the golden file.
///
/// # Errors
///
/// [`LintError::Write`] when the file can't be written.
pub fn bless(workspace: &Workspace) -> Result<(), LintError> {
    let Some(name) = &workspace.config.graph else {
        return Ok(());
    };
    let path = workspace.root.join(name);
    std::fs::write(&path, graph(workspace)).map_err(|source| LintError::Write { path, source })
}

fn kind_name(kind: DependencyKind) -> &'static str {
    match kind {
        DependencyKind::Development => "dev",
        DependencyKind::Build => "build",
        _ => "normal",
    }
}

/// A finding in the manifest of a crate, on the line of the dependency.
fn in_manifest(
    workspace: &Workspace,
    package: &Package,
    dependency: &str,
    rule: Rule,
    message: String,
) -> Finding {
    let text = std::fs::read_to_string(&package.manifest_path).unwrap_or_default();
    let names = |line: &str| {
        line.split_once(dependency).is_some_and(|(before, behind)| {
            let before = before.trim_start_matches(['[', '"']);
            (before.is_empty() || before.ends_with("dependencies."))
                && behind.starts_with(['.', ' ', '=', '"', ']'])
        })
    };
    let line = text.lines().position(names).map_or(1, |index| index + 1);
    Finding {
        path: super::relative(&workspace.root, package.manifest_path.as_std_path()),
        line,
        column: 1,
        rule,
        message,
    }
}

fn floors(workspace: &Workspace) -> Vec<Finding> {
    let config = &workspace.config;
    let packages = workspace.packages();
    let mut findings = Vec::new();
    for name in config.crates.keys() {
        if !packages.iter().any(|package| package.name.as_str() == name) {
            findings.push(Finding {
                path: workspace.config_path.clone(),
                line: workspace.config_line(&format!("[crates.{name}]")),
                column: 1,
                rule: Rule::FloorUnknown,
                message: format!("the workspace has no crate {name}; remove its entry"),
            });
        }
    }
    for package in &packages {
        let Some(entry) = config.crates.get(package.name.as_str()) else {
            findings.push(in_manifest(
                workspace,
                package,
                "name",
                Rule::FloorUnknown,
                format!(
                    "{name} has no floor; add `[crates.{name}]` with `floor = …` to {}",
                    workspace.config_path,
                    name = package.name,
                ),
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let Some(target) = config.crates.get(&dependency.name) else {
                continue;
            };
            let is_dev = dependency.kind == DependencyKind::Development;
            let problem = match (entry.floor, target.floor) {
                (None, _) => continue,
                (Some(_), None) => format!(
                    "{} stands beside the building; no crate of it may depend on it",
                    dependency.name
                ),
                (Some(floor), Some(below)) if below < floor || (is_dev && below == floor) => {
                    continue;
                }
                (Some(floor), Some(above)) => format!(
                    "{} (floor {floor}) may not depend on {} (floor {above}); move what it needs down, \
                     or let the upper crate bring it in",
                    package.name, dependency.name
                ),
            };
            let message = format!("{problem} [{} dependency]", kind_name(dependency.kind));
            findings.push(in_manifest(
                workspace,
                package,
                &dependency.name,
                Rule::FloorOrder,
                message,
            ));
        }
    }
    findings
}

fn only(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in workspace.packages() {
        for dependency in &package.dependencies {
            for rule in &workspace.config.only {
                if glob::matches_any(&rule.dependencies, &dependency.name)
                    && !rule
                        .crates
                        .iter()
                        .any(|name| name.as_str() == package.name.as_str())
                {
                    let message = format!(
                        "{} may not depend on {}: {} [{} dependency]",
                        package.name,
                        dependency.name,
                        rule.reason,
                        kind_name(dependency.kind)
                    );
                    findings.push(in_manifest(
                        workspace,
                        package,
                        &dependency.name,
                        Rule::FloorOnly,
                        message,
                    ));
                }
            }
        }
    }
    findings
}

/// Direct dependencies of every kind, and what the normal and build ones bring with them.
fn above(workspace: &Workspace) -> Vec<Finding> {
    let config = &workspace.config;
    let mut findings = Vec::new();
    let edges = resolved_edges(workspace);
    for package in workspace.packages() {
        let Some(floor) = config
            .crates
            .get(package.name.as_str())
            .and_then(|entry| entry.floor)
        else {
            continue;
        };
        for rule in config.above.iter().filter(|rule| floor < rule.floor) {
            let mut reported = BTreeSet::new();
            for path in paths_to(workspace, &edges, package, &rule.dependencies) {
                let [first, .., last] = path.as_slice() else {
                    continue;
                };
                // Only the first crate that brings it in says something that can be acted on.
                if !reported.insert(last.clone()) || config.crates.contains_key(first) {
                    continue;
                }
                let message = format!(
                    "{} (floor {floor}) brings in {last} by {}: {}; only floor {} and up may",
                    package.name,
                    path.join(" -> "),
                    rule.reason,
                    rule.floor
                );
                findings.push(in_manifest(
                    workspace,
                    package,
                    first,
                    Rule::FloorAbove,
                    message,
                ));
            }
            for dependency in &package.dependencies {
                if glob::matches_any(&rule.dependencies, &dependency.name) {
                    let message = format!(
                        "{} (floor {floor}) may not depend on {}: {}; only floor {} and up may [{} dependency]",
                        package.name,
                        dependency.name,
                        rule.reason,
                        rule.floor,
                        kind_name(dependency.kind)
                    );
                    findings.push(in_manifest(
                        workspace,
                        package,
                        &dependency.name,
                        Rule::FloorAbove,
                        message,
                    ));
                }
            }
        }
    }
    findings
}

/// Who depends on whom once features are resolved, dev dependencies left out.
fn resolved_edges(workspace: &Workspace) -> BTreeMap<&PackageId, Vec<&PackageId>> {
    let nodes = workspace
        .metadata
        .resolve
        .as_ref()
        .map(|resolve| resolve.nodes.as_slice())
        .unwrap_or_default();
    nodes
        .iter()
        .map(|node| {
            let runs = node
                .deps
                .iter()
                .filter(|dep| {
                    dep.dep_kinds
                        .iter()
                        .any(|kind| kind.kind != DependencyKind::Development)
                })
                .map(|dep| &dep.pkg)
                .collect();
            (&node.id, runs)
        })
        .collect()
}

/// The shortest path from the crate to each package of these names that it does not name itself.
fn paths_to(
    workspace: &Workspace,
    edges: &BTreeMap<&PackageId, Vec<&PackageId>>,
    package: &Package,
    names: &[String],
) -> Vec<Vec<String>> {
    let name_of: BTreeMap<&PackageId, &str> = workspace
        .metadata
        .packages
        .iter()
        .map(|package| (&package.id, package.name.as_str()))
        .collect();
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([&package.id]);
    let mut queue = VecDeque::from([(&package.id, Vec::<String>::new())]);
    while let Some((id, path)) = queue.pop_front() {
        for &next in edges.get(id).into_iter().flatten() {
            if !seen.insert(next) {
                continue;
            }
            let name = name_of.get(next).copied().unwrap_or_default();
            let mut longer = path.clone();
            longer.push(name.to_owned());
            if !path.is_empty() && glob::matches_any(names, name) {
                found.push(longer.clone());
            }
            queue.push_back((next, longer));
        }
    }
    found
}

fn golden(workspace: &Workspace) -> Result<Vec<Finding>, LintError> {
    let Some(name) = &workspace.config.graph else {
        return Ok(Vec::new());
    };
    let path = workspace.root.join(name);
    let golden = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(LintError::Read { path, source }),
    };
    let graph = graph(workspace);
    let golden_lines: Vec<&str> = golden.lines().collect();
    let lines: Vec<&str> = graph
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let finding = |line: usize, message: String| Finding {
        path: name.clone(),
        line,
        column: 1,
        rule: Rule::CrateGraph,
        message,
    };
    let gone = golden_lines
        .iter()
        .enumerate()
        .filter(|(_, edge)| !edge.starts_with('#') && !lines.contains(edge))
        .map(|(index, edge)| {
            finding(
                index + 1,
                format!(
                    "the edge {edge} is gone; run `cargo xtask lint --bless` and commit the diff"
                ),
            )
        });
    let new = lines.iter().filter(|edge| !golden_lines.contains(edge)).map(|edge| {
        let line = golden_lines.iter().position(|other| other > edge).unwrap_or(golden_lines.len());
        finding(
            line.max(1),
            format!("the edge {edge} is new; if it is wanted, run `cargo xtask lint --bless` and commit the diff"),
        )
    });
    Ok(gone.chain(new).collect())
}
