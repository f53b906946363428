package wire

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNamesDecodeLikeAnyList(t *testing.T) {
	for name, text := range map[string]string{
		"none":                `[]`,
		"one":                 `["a"]`,
		"several":             `["a","b.example","c-1"]`,
		"spaces":              "[ \"a\" ,\n\t\"b\" ]",
		"an empty name":       `["","a"]`,
		"a comma in a name":   `["a,b","c"]`,
		"a bracket in a name": `["a]","[b"]`,
		"escapes":             `["a\"b","c\\","\u0041"]`,
		"beyond ASCII":        `["é","a"]`,
		"invalid UTF-8":       "[\"\xff\"]",
		"null in between":     `["a",null]`,
		"null":                `null`,
		"a number":            `["a",1]`,
		"a list in a list":    `[["a"]]`,
		"an object":           `{"a":"b"}`,
		"text":                `"a"`,
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			wantErr := json.Unmarshal([]byte(text), &want)
			var got names
			err := json.Unmarshal([]byte(text), &got)
			if wantErr != nil {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, want, []string(got))
		})
	}
}

func FuzzNames(f *testing.F) {
	for _, text := range []string{`["a","b"]`, `["\u0041",null]`, `[ ]`, `["a,b"]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want []string
		wantErr := json.Unmarshal(data, &want)
		var got names
		err := json.Unmarshal(data, &got)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("got error %v, encoding/json %v", err, wantErr)
		}
		if err == nil && !assert.ObjectsAreEqual(want, []string(got)) {
			t.Fatalf("got %q, encoding/json %q", got, want)
		}
	})
}
