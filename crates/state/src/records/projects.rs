//! Projects: the directories that resources belong to.

use rusqlite::named_params;

use crate::command::Change;
use crate::error::StateError;
use crate::id::derived_id;

impl Change<'_> {
    /// Names the project of a canonical, absolute path, and stores it when it is new. Returns the project id.
    ///
    /// # Errors
    ///
    /// [`StateError::Input`] when the path is not absolute.
    pub fn project(&mut self, canonical_path: &str) -> Result<String, StateError> {
        if !canonical_path.starts_with('/') {
            return Err(StateError::Input {
                what: "project path",
                problem: format!("{canonical_path:?} is not absolute; give the canonical path"),
            });
        }
        let project_id = derived_id("project", &[canonical_path]);
        let now = self.now();
        self.kernel_sql()
            .prepare_cached(
                "INSERT INTO projects (project_id, canonical_path, created_at)
                 VALUES (:project_id, :canonical_path, :now) ON CONFLICT (project_id) DO NOTHING",
            )?
            .execute(named_params! { ":project_id": project_id, ":canonical_path": canonical_path, ":now": now })?;
        Ok(project_id)
    }
}
