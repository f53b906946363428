package upgrade

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// stored is the version that objects are stored as.
const stored = "v1alpha1"

// onPurpose are changes that break objects of the earlier version, each with why it was made all the same. Nothing has been released.
var onPurpose = map[string]string{}

// properties is what a schema says of a field, as far as it is compared.
type properties struct {
	Type                 string
	Format               string
	IntOrString          bool `json:"x-kubernetes-int-or-string"`
	PreserveUnknown      bool `json:"x-kubernetes-preserve-unknown-fields"`
	Nullable             bool
	Default              any
	Enum                 []any
	Required             []string
	Properties           map[string]properties
	Items                *properties
	AdditionalProperties *properties
}

// breaks says which objects that a schema allows another one refuses, or cuts a field from: a field that is gone, newly required, of
// another type, or that may not have a value any more.
func breaks(field string, earlier, now properties) (found []string) {
	if now.PreserveUnknown && now.Type == earlier.Type && len(now.Properties) == 0 {
		return nil
	}
	if earlier.Type != now.Type || earlier.Format != now.Format || earlier.IntOrString != now.IntOrString {
		return []string{field + " is of another type"}
	}
	if earlier.PreserveUnknown && !now.PreserveUnknown || earlier.AdditionalProperties != nil && now.AdditionalProperties == nil {
		found = append(found, field+" has no fields of any name")
	}
	if earlier.Nullable && !now.Nullable {
		found = append(found, field+" may not be null")
	}
	for _, value := range earlier.Enum {
		if len(now.Enum) > 0 && !slices.Contains(now.Enum, value) {
			found = append(found, fmt.Sprint(field, " may not be ", value))
		}
	}
	if len(earlier.Enum) == 0 && len(now.Enum) > 0 {
		found = append(found, field+" may only be one of a list")
	}
	for _, name := range now.Required {
		if !slices.Contains(earlier.Required, name) && now.Properties[name].Default == nil {
			found = append(found, field+"."+name+" is required")
		}
	}
	for name, was := range earlier.Properties {
		is, kept := now.Properties[name]
		if !kept {
			found = append(found, field+"."+name+" is gone")
			continue
		}
		found = append(found, breaks(field+"."+name, was, is)...)
	}
	if earlier.Items != nil && now.Items != nil {
		found = append(found, breaks(field+"[]", *earlier.Items, *now.Items)...)
	}
	if earlier.AdditionalProperties != nil && now.AdditionalProperties != nil {
		found = append(found, breaks(field+"{}", *earlier.AdditionalProperties, *now.AdditionalProperties)...)
	}
	slices.Sort(found)
	return found
}

func TestWhatBreaksObjectsIsSeen(t *testing.T) {
	const was = `
type: object
required: [name]
properties:
  name: {type: string}
  kind: {type: string, enum: [One, Two]}
  count: {type: integer, format: int32}
  share: {x-kubernetes-int-or-string: true}
  any: {type: object, x-kubernetes-preserve-unknown-fields: true}
  labels: {type: object, additionalProperties: {type: string}}
  list:
    type: array
    items:
      type: object
      properties: {path: {type: string}}
`
	for name, test := range map[string]struct {
		old, new string
		found    []string
	}{
		"nothing changed":      {},
		"a field is new":       {"  name: {type: string}", "  name: {type: string}\n  more: {type: string}", nil},
		"a value is new":       {"[One, Two]", "[One, Two, Three]", nil},
		"any value is good":    {", enum: [One, Two]", "", nil},
		"one may leave it out": {"required: [name]", "required: []", nil},
		"a field that is required has a default": {"required: [name]\nproperties:",
			"required: [name, more]\nproperties:\n  more: {type: string, default: x}", nil},
		"a field is gone":         {"  kind: {type: string, enum: [One, Two]}\n", "", []string{"o.kind is gone"}},
		"a field of a list":       {"path: {type", "way: {type", []string{"o.list[].path is gone"}},
		"a field is required":     {"required: [name]", "required: [name, kind]", []string{"o.kind is required"}},
		"a new one is required":   {"      properties: {p", "      required: [x]\n      properties: {p", []string{"o.list[].x is required"}},
		"another type":            {"count: {type: integer, format: int32", "count: {type: string", []string{"o.count is of another type"}},
		"another width":           {"int32", "int64", []string{"o.count is of another type"}},
		"a number alone":          {"x-kubernetes-int-or-string: true", "type: integer", []string{"o.share is of another type"}},
		"another type of a value": {"Properties: {type: string", "Properties: {type: integer", []string{"o.labels{} is of another type"}},
		"fields of any name":      {", additionalProperties: {type: string}", "", []string{"o.labels has no fields of any name"}},
		"what it does not know":   {", x-kubernetes-preserve-unknown-fields: true", "", []string{"o.any has no fields of any name"}},
		"a value is gone":         {"[One, Two]", "[One]", []string{"o.kind may not be Two"}},
		"only some values":        {"name: {type: string", "name: {type: string, enum: [a]", []string{"o.name may only be one of a list"}},
		"it may also be null":     {"name: {type: string", "name: {type: string, nullable: true", nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, was, test.old)
			assert.Equal(t, test.found, breaks("o", schema(t, was), schema(t, strings.Replace(was, test.old, test.new, 1))))
		})
	}
	assert.Equal(t, []string{"o may not be null"}, breaks("o", properties{Nullable: true}, properties{}))
}

func schema(t *testing.T, text string) (read properties) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(text), &read))
	return read
}

// TestSchemasAllowWhatTheVersionBeforeAllowed compares what is stored: an object of the version that is upgraded is served, and may be
// written again, by the definitions of this tree.
func TestSchemasAllowWhatTheVersionBeforeAllowed(t *testing.T) {
	commit := strings.TrimSpace(from)
	git := func(arguments ...string) (string, string, error) {
		var output, complaint bytes.Buffer
		command := exec.CommandContext(t.Context(), "git", arguments...)
		command.Dir, command.Stdout, command.Stderr = fabric.Root(), &output, &complaint
		err := command.Run()
		return output.String(), complaint.String(), err
	}
	if _, complaint, err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		shallow, _, unknown := git("rev-parse", "--is-shallow-repository")
		require.False(t, unknown == nil && strings.TrimSpace(shallow) == "false", "commit %s, which is upgraded, is not in this clone: %s",
			commit, complaint)
		t.Skip("commit " + commit + ", which is upgraded, is not in this clone: git fetch --unshallow")
	}
	listed, complaint, err := git("ls-tree", "-r", "--name-only", commit, "--", "deploy")
	require.NoError(t, err, complaint)
	earlier := map[string]properties{}
	for file := range strings.Lines(listed) {
		file = strings.TrimSpace(file)
		if isDefinition(file) {
			text, complaint, err := git("show", commit+":"+file)
			require.NoError(t, err, complaint)
			definition(t, text, earlier)
		}
	}
	require.GreaterOrEqual(t, len(earlier), 5, listed)
	now := map[string]properties{}
	require.NoError(t, filepath.WalkDir(filepath.Join(fabric.Root(), "deploy"), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !isDefinition(filepath.ToSlash(file)) {
			return err
		}
		text, err := os.ReadFile(file)
		if err == nil {
			definition(t, string(text), now)
		}
		return err
	}))
	known := map[string]bool{}
	for name, was := range earlier {
		require.Contains(t, now, name)
		for _, found := range breaks(name, was, now[name]) {
			known[found] = true
			assert.NotEmpty(t, onPurpose[found], found)
		}
	}
	for change := range onPurpose {
		assert.True(t, known[change], "%s: it does not any more, so take it out of the list", change)
	}
}

func isDefinition(file string) bool {
	return path.Base(path.Dir(file)) == "crds" && path.Base(file) != "kustomization.yaml" && path.Ext(file) == ".yaml"
}

// definition reads the schema of what is stored, by the name of the definition.
func definition(t *testing.T, text string, into map[string]properties) {
	t.Helper()
	var read struct {
		Metadata struct{ Name string }
		Spec     struct {
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema properties }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &read))
	for _, version := range read.Spec.Versions {
		if version.Name == stored {
			require.NotEmpty(t, version.Schema.OpenAPIV3Schema.Properties, read.Metadata.Name)
			into[read.Metadata.Name] = version.Schema.OpenAPIV3Schema
		}
	}
	require.Contains(t, into, read.Metadata.Name)
}
