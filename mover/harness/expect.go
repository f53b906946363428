package harness

import (
	"fmt"

	"github.com/lodestone-storage/lodestone/mover/cases"
)

// refused are the cases that the mover refuses in Prepare, by their numbers. Of all
// others it keeps everything, or notices what is wrong, except for the gaps.
var refused = map[string]bool{
	"16b": true,                           // no program can name such a path
	"29":  true,                           // the target is too small
	"35a": true, "35b": true, "35c": true, // the mover lacks a capability
}

// gaps are the cases in which the mover loses something and nothing tells, by their
// numbers: what is lost, as a comparison says it. Users are told so in docs/moves.md,
// "Known gaps".
var gaps = map[string]string{
	// The one more is the symbolic link.
	"4a":  "file: extended attributes differ: trusted.note is missing (and 1 more)",
	"35d": "file: extended attributes differ: trusted.note is missing",
}

// Expected is what is documented to become of a case.
func Expected(c cases.Case) cases.Outcome {
	switch {
	case gaps[c.Number] != "":
		return cases.OutcomeLost
	case refused[c.Number]:
		return cases.OutcomeRefused
	case c.Must == cases.Noticed:
		return cases.OutcomeFailed
	}
	return cases.OutcomeKept
}

// Check fails if something else became of a case than is documented.
func Check(c cases.Case, result cases.Result) error {
	expected := Expected(c)
	gap := gaps[c.Number]
	switch {
	case result.Outcome != expected, result.Meets != (gap == ""), gap != "" && result.Reason != gap:
		return fmt.Errorf("case %s, %s: %s, but %s is documented: %s", c.Number, c.Name, result.Outcome, expected, result.Reason)
	}
	return nil
}
