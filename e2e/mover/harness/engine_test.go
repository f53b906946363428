package harness

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/e2e/mover/cases"
)

func TestOnlyWhatIsDocumentedMayBecomeOfACase(t *testing.T) {
	const gap = "file: extended attributes differ: trusted.note is missing"
	for name, row := range map[string]struct {
		number string
		must   cases.Demand
		result cases.Result
		wrong  bool
	}{
		"kept":                  {number: "1", must: cases.Kept, result: cases.Result{Outcome: cases.OutcomeKept, Meets: true}},
		"lost":                  {number: "1", must: cases.Kept, result: cases.Result{Outcome: cases.OutcomeLost, Reason: gap}, wrong: true},
		"failed":                {number: "1", must: cases.Kept, result: cases.Result{Outcome: cases.OutcomeFailed}, wrong: true},
		"refused as documented": {number: "29", must: cases.KeptOrRefused, result: cases.Result{Outcome: cases.OutcomeRefused, Meets: true}},
		"refused, which is not said": {number: "13", must: cases.KeptOrRefused, result: cases.Result{Outcome: cases.OutcomeRefused, Meets: true},
			wrong: true},
		"noticed":           {number: "33", must: cases.Noticed, result: cases.Result{Outcome: cases.OutcomeFailed, Meets: true}},
		"noticed by nobody": {number: "33", must: cases.Noticed, result: cases.Result{Outcome: cases.OutcomeLost}, wrong: true},
		"a gap":             {number: "35d", must: cases.KeptOrRefused, result: cases.Result{Outcome: cases.OutcomeLost, Reason: gap}},
		"more lost than the gap": {number: "35d", must: cases.KeptOrRefused, result: cases.Result{Outcome: cases.OutcomeLost, Reason: gap +
			" (and 1 more)"}, wrong: true},
		"a gap that is closed": {number: "4a", must: cases.KeptOrRefused, result: cases.Result{Outcome: cases.OutcomeKept, Meets: true},
			wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(cases.Case{Number: row.number, Must: row.must}, row.result)
			assert.Equal(t, row.wrong, err != nil, "%v", err)
		})
	}
}
