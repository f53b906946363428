package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"unicode"

	"sigs.k8s.io/yaml"
)

// definition is what the page needs of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group string
		Scope string
		Names struct {
			Kind, Plural string
			ShortNames   []string
		}
		Versions []struct {
			Name                     string
			AdditionalPrinterColumns []struct {
				Name     string
				Priority int
			}
			Schema struct {
				OpenAPIV3Schema schema
			}
		}
	}
}

// schema is what the page needs of a schema.
type schema struct {
	Type, Format, Description, Pattern string
	Properties                         map[string]schema
	Items                              *schema
	AdditionalProperties               *schema
	Required                           []string
	Enum                               []any
	Default                            any
	Minimum, Maximum                   *float64
	MinLength, MaxLength               *int64
	MinItems, MaxItems                 *int64
	IntOrString                        bool                       `json:"x-kubernetes-int-or-string"`
	Open                               bool                       `json:"x-kubernetes-preserve-unknown-fields"`
	Rules                              []struct{ Message string } `json:"x-kubernetes-validations"`
}

// kubernetes names the types of Kubernetes that fields have, by how their descriptions begin: their fields are
// explained in Kubernetes' own reference.
var kubernetes = map[string]string{
	"Condition contains details for one aspect":    "Condition",
	"LimitRangeItem defines a min/max usage limit": "LimitRangeItem",
}

func definitions(root string) ([]definition, error) {
	var kinds []definition
	for _, folder := range []string{"deploy/base/crds", "deploy/remote/crds", "deploy/network/program/crds"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*_*.yaml"))
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", folder, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read a definition: %w", err)
			}
			var d definition
			if err := yaml.Unmarshal(data, &d); err != nil {
				return nil, fmt.Errorf("decode %s: %w", file, err)
			}
			kinds = append(kinds, d)
		}
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("there are no definitions in %s", root)
	}
	return kinds, nil
}

//go:embed api.md.tmpl
var apiTemplate string

func apiPage(kinds []definition) (string, error) {
	page, err := template.New("api.md").Funcs(template.FuncMap{"lower": strings.ToLower}).Parse(apiTemplate)
	if err != nil {
		return "", fmt.Errorf("read the template: %w", err)
	}
	type kind struct {
		Name, Version, Scope, Short, Text, Columns, Wide string
		Rules                                            []string
		Spec, Status                                     []field
	}
	var all []kind
	for _, d := range kinds {
		version := d.Spec.Versions[0]
		whole := version.Schema.OpenAPIV3Schema
		k := kind{
			Name: d.Spec.Names.Kind, Version: d.Spec.Group + "/" + version.Name, Scope: "in a namespace",
			Text: paragraph(whole.Description, "", d.Spec.Names.Kind), Short: strings.Join(d.Spec.Names.ShortNames, ", "),
		}
		if d.Spec.Scope == "Cluster" {
			k.Scope = "of the whole cluster"
		}
		var narrow, wide []string
		for _, column := range version.AdditionalPrinterColumns {
			if column.Priority == 0 {
				narrow = append(narrow, column.Name)
			} else {
				wide = append(wide, column.Name)
			}
		}
		k.Columns, k.Wide = strings.Join(narrow, ", "), strings.Join(wide, ", ")
		for _, rule := range whole.Rules {
			k.Rules = append(k.Rules, rule.Message)
		}
		if k.Spec, err = fields("spec", whole.Properties["spec"]); err != nil {
			return "", fmt.Errorf("%s: %w", k.Name, err)
		}
		if k.Status, err = fields("status", whole.Properties["status"]); err != nil {
			return "", fmt.Errorf("%s: %w", k.Name, err)
		}
		all = append(all, k)
	}
	var text strings.Builder
	if err := page.Execute(&text, all); err != nil {
		return "", fmt.Errorf("fill in the template: %w", err)
	}
	return text.String(), nil
}

// field is one row of a table.
type field struct {
	Path, Type, Text string
}

// fields returns the rows of all fields within an object, each parent before its children.
func fields(path string, s schema) ([]field, error) {
	var rows []field
	for _, name := range sorted(s.Properties) {
		child := s.Properties[name]
		at := path + "." + name
		text := paragraph(child.Description, name, "")
		if text == "" {
			return nil, errors.New(at + " has no comment: write one above the field in pkg/api")
		}
		var notes []string
		if slices.Contains(s.Required, name) && path != "status" && !strings.HasPrefix(path, "status.") {
			notes = append(notes, "**Required.**")
		}
		notes = append(notes, text)
		if limits := limits(child); limits != "" {
			notes = append(notes, limits)
		}
		for _, rule := range child.Rules {
			notes = append(notes, "Else refused: \""+rule.Message+"\".")
		}
		kind, within := typeOf(child)
		rows = append(rows, field{Path: at, Type: kind, Text: strings.Join(notes, " ")})
		if within == nil {
			continue
		}
		if child.Items != nil {
			at += "[]"
		}
		deeper, err := fields(at, *within)
		if err != nil {
			return nil, err
		}
		rows = append(rows, deeper...)
	}
	return rows, nil
}

// typeOf names the type of a field, and returns the schema of the object that it holds, if it is to be explained.
func typeOf(s schema) (string, *schema) {
	for begin, name := range kubernetes {
		if s.Items != nil && strings.HasPrefix(s.Items.Description, begin) {
			return "list of " + name, nil
		}
	}
	switch {
	case s.IntOrString:
		return "quantity", nil
	case s.Items != nil:
		kind, within := typeOf(*s.Items)
		if within != nil {
			kind = "objects"
		}
		return "list of " + strings.TrimSuffix(kind, "s") + "s", within
	case s.AdditionalProperties != nil:
		kind, _ := typeOf(*s.AdditionalProperties)
		return "map of " + kind, nil
	case s.Properties != nil:
		return "object", &s
	case s.Open:
		return "PodTemplateSpec", nil
	case s.Format == "date-time":
		return "time", nil
	case s.Type == "":
		return "any", nil
	default:
		return s.Type, nil
	}
}

// limits says in words which values a field may have.
func limits(s schema) string {
	var parts []string
	if len(s.Enum) > 0 {
		var values []string
		for _, value := range s.Enum {
			values = append(values, fmt.Sprintf("`%v`", value))
		}
		parts = append(parts, strings.Join(values[:len(values)-1], ", ")+" or "+values[len(values)-1])
	}
	bounds := func(least, most *int64, unit string) {
		switch {
		case most != nil && least != nil && *least > 0:
			parts = append(parts, fmt.Sprintf("%d to %d%s", *least, *most, unit))
		case most != nil:
			parts = append(parts, fmt.Sprintf("at most %d%s", *most, unit))
		case least != nil && *least > 0:
			parts = append(parts, fmt.Sprintf("at least %d%s", *least, unit))
		}
	}
	bounds(s.MinItems, s.MaxItems, " entries")
	if s.MaxLength == nil && s.MinLength != nil && *s.MinLength == 1 {
		parts = append(parts, "not empty")
	} else {
		bounds(s.MinLength, s.MaxLength, " characters")
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		parts = append(parts, fmt.Sprintf("%s to %s", number(*s.Minimum), number(*s.Maximum)))
	case s.Minimum != nil:
		parts = append(parts, fmt.Sprintf("at least %s", number(*s.Minimum)))
	case s.Maximum != nil:
		parts = append(parts, fmt.Sprintf("at most %s", number(*s.Maximum)))
	}
	if s.Pattern != "" && !s.IntOrString {
		parts = append(parts, "as `"+s.Pattern+"`")
	}
	if s.Default != nil {
		parts = append(parts, fmt.Sprintf("default `%v`", s.Default))
	}
	if len(parts) == 0 {
		return ""
	}
	text := strings.Join(parts, "; ") + "."
	return strings.ToUpper(text[:1]) + text[1:]
}

// number writes a bound without an exponent.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// paragraph joins the lines of a comment. Where it begins with the Go name of a field, which is the one that users
// write but for capitals, it then begins with that one.
func paragraph(comment, name, kind string) string {
	words := strings.Fields(comment)
	if len(words) == 0 {
		return ""
	}
	first := strings.TrimRightFunc(words[0], unicode.IsPunct)
	if name != "" && strings.EqualFold(first, name) {
		words[0] = "`" + name + "`" + words[0][len(first):]
	}
	if kind != "" && first == kind {
		words[0] = "A " + kind + words[0][len(first):]
	}
	text := strings.NewReplacer("|", "\\|", "<", "&lt;").Replace(strings.Join(words, " "))
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}
