package confirm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
)

func TestOnlyTheWordConfirms(t *testing.T) {
	for name, test := range map[string]struct {
		typed string
		yes   bool
		want  outcome.Code
	}{
		"the word":                        {typed: "west\n"},
		"the word without an end of line": {typed: "west"},
		"the flag":                        {yes: true},
		"another word":                    {typed: "yes\n", want: outcome.Refused},
		"nothing":                         {want: outcome.Refused},
		"the word in capitals":            {typed: "West\n", want: outcome.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			assert.Equal(t, test.want, outcome.Of(Typed(strings.NewReader(test.typed), &out, test.yes, "west")))
			assert.Equal(t, !test.yes, strings.Contains(out.String(), "Type west to go on"))
		})
	}
}
