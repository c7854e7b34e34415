//! What each thing takes.
