//! The graph through a step, from the visits that are kept by node: what [`GraphState`](crate::replay::GraphState) folds, without the
//! history.

use holdpoint_state::sql::named_params;
use holdpoint_state::{Reads, ResourceKey, StateError};
use holdpoint_workflows::views::pages;

use super::rows::{VisitRow, position, unsigned, visit};
use crate::documents::GraphStep;
use crate::render::graph_step;
use crate::replay::GRAPH_WINDOW;

/// The steps of the graph through the step at `cursor`, and the edges that were taken up to it.
pub(super) fn graph(
    reads: &impl Reads,
    run: ResourceKey,
    (cursor, total): (u64, u64),
) -> Result<(Vec<GraphStep>, Vec<String>), StateError> {
    if total == 0 {
        return Ok((Vec::new(), Vec::new()));
    }
    let end = cursor.saturating_add(1).min(total);
    let from = end.saturating_sub(GRAPH_WINDOW);
    let older = older_than_window(reads, run, (from, end))?;
    let mut steps = Vec::new();
    for visited in &older {
        for row in pages::steps(reads, run, (visited.step, visited.step + 1), 0)? {
            steps.push(graph_step(&row, visited.visit));
        }
    }
    let visits = visits(reads, run, (from, end))?;
    let rows = pages::steps(reads, run, (from, end), 0)?;
    steps.extend(
        rows.iter()
            .zip(visits)
            .map(|(row, visited)| graph_step(row, visited.visit)),
    );
    Ok((steps, taken(reads, run, end)?))
}

fn visits(
    reads: &impl Reads,
    run: ResourceKey,
    (from, until): (u64, u64),
) -> Result<Vec<VisitRow>, StateError> {
    let sql = reads.reading();
    let mut statement = sql.prepare_cached(
        "SELECT step_index, node_id, visit, trace_seq FROM viewer_visits
         WHERE run_key = :run AND :from <= step_index AND step_index < :until ORDER BY step_index",
    )?;
    let parameters =
        named_params! { ":run": run, ":from": position(from), ":until": position(until) };
    let rows = statement.query_map(parameters, visit)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The newest visits, before step `until`, of the nodes that have none from step `from` on: in the order of the steps. Found from node
/// to node, however often each was visited.
pub(crate) fn older_than_window(
    reads: &impl Reads,
    run: ResourceKey,
    (from, until): (u64, u64),
) -> Result<Vec<VisitRow>, StateError> {
    if from == 0 {
        return Ok(Vec::new());
    }
    let sql = reads.reading();
    let mut statement = sql.prepare_cached(
        "WITH RECURSIVE nodes (node_id) AS (
             SELECT min(node_id) FROM viewer_visits WHERE run_key = :run
             UNION ALL
             SELECT (SELECT min(v.node_id) FROM viewer_visits v WHERE v.run_key = :run AND n.node_id < v.node_id)
             FROM nodes n WHERE n.node_id IS NOT NULL),
         newest (node_id, step_index) AS (
             SELECT n.node_id, (SELECT max(v.step_index) FROM viewer_visits v
                 WHERE v.run_key = :run AND v.node_id = n.node_id AND v.step_index < :until)
             FROM nodes n WHERE n.node_id IS NOT NULL)
         SELECT v.step_index, v.node_id, v.visit, v.trace_seq FROM newest w
         CROSS JOIN viewer_visits v ON v.run_key = :run AND v.node_id = w.node_id AND v.step_index = w.step_index
         WHERE w.step_index < :from ORDER BY w.step_index",
    )?;
    let parameters =
        named_params! { ":run": run, ":from": position(from), ":until": position(until) };
    let rows = statement.query_map(parameters, visit)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The edges that were taken before step `until`. There are no more than the definition has.
fn taken(reads: &impl Reads, run: ResourceKey, until: u64) -> Result<Vec<String>, StateError> {
    let sql = reads.reading();
    let mut statement = sql.prepare_cached(
        "SELECT first_step, from_node, to_node FROM viewer_edges WHERE run_key = :run AND first_step < :until
         ORDER BY first_step",
    )?;
    let parameters = named_params! { ":run": run, ":until": position(until) };
    let rows = statement.query_map(parameters, |row| {
        unsigned(row, 0)?;
        Ok(format!(
            "{}->{}",
            row.get::<_, String>(1)?,
            row.get::<_, String>(2)?
        ))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
