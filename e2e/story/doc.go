// Package story tells what Lodestone does, step by step, on two real control
// planes, and checks each thing that it tells. `make demo` shows it with the
// commands and the output that a user would see; `make demo-check` runs the same
// story with nothing but its checks.
//
// A step is a title, a few plain words and a list of acts: a command that is run
// and shown, something done to the clusters, or a check. The first check that
// fails ends the story, since what follows builds on it.
package story
