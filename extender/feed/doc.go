// Package feed keeps a snapshot up to date with the API server of the home
// cluster. It watches, and writes each change straight into the snapshot: whole
// objects are not kept, so that 50,000 claims cost little memory.
package feed
