//! What a workflow is: steps, their needs and their expressions; checked before it is stored.
