package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/mover/cases"
	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
)

func TestTheDocumentedTableHasEachCaseAsTheMoverMustEndIt(t *testing.T) {
	page, err := os.ReadFile("../../../docs/move-cases.md")
	require.NoError(t, err)
	rows := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"); len(cells) == 7 {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows[cells[0]] = cells
		}
	}
	words := map[cases.Outcome]string{
		cases.OutcomeKept: "kept", cases.OutcomeRefused: "refused", cases.OutcomeFailed: "noticed", cases.OutcomeLost: "**LOST**",
	}
	all := cases.All(cases.Quick)
	assert.Len(t, rows, len(all)+2, "there is a row for each case, and the head")
	for _, c := range all {
		if assert.Contains(t, rows, c.Number) {
			row := rows[c.Number]
			assert.Equal(t, []string{c.Name, string(c.Must), words[harness.Expected(c)]}, []string{row[1], row[2], row[6]}, "case %s", c.Number)
		}
	}
}
