package main

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/deploy"
	"github.com/lodestone-storage/lodestone/deploy/changelog"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/install"
)

// repository is where the chart is made.
const repository = "https://github.com/lodestone-storage/lodestone"

type (
	hubImage struct {
		Name  string `json:"name"`
		Image string `json:"image"`
	}
	hubDefinition struct {
		Kind        string `json:"kind"`
		Version     string `json:"version"`
		Name        string `json:"name"`
		DisplayName string `json:"displayName"`
		Description string `json:"description"`
	}
	hubLink struct {
		Name string `json:"name"`
		URL  string `json:"url"`
	}
)

// ofLodestone is an image in a template.
var ofLodestone = regexp.MustCompile(`\{\{ \.Values\.registry \}\}/(lodestone-[a-z-]+):`)

// annotate adds to Chart.yaml what Artifact Hub shows of a chart, from what the templates, the definitions, the examples and the
// changelog say. The image of a second scheduler is that of the cluster's version, so it is not among the images.
func annotate(chart, version, changes string, templates []string) (string, error) {
	var images []hubImage
	for _, template := range templates {
		for _, match := range ofLodestone.FindAllStringSubmatch(template, -1) {
			image := hubImage{match[1], install.DefaultRegistry + "/" + match[1] + ":" + version}
			if !slices.Contains(images, image) {
				images = append(images, image)
			}
		}
	}
	slices.SortFunc(images, func(a, b hubImage) int { return strings.Compare(a.Name, b.Name) })
	definitions, err := hubDefinitions()
	if err != nil {
		return "", err
	}
	examples, err := hubExamples(definitions)
	if err != nil {
		return "", err
	}
	shown := map[string]any{
		"images": images, "crds": definitions, "crdsExamples": examples,
		"links": []hubLink{{"documentation", repository + "#documentation"}, {"source", repository},
			{"support", repository + "/blob/main/docs/support.md#help"}},
	}
	// A release without such a section is refused where its notes are made; a chart of one's own need not have any.
	if section, err := changelog.Section(changes, version); err == nil {
		shown["changes"] = changelog.Changes(section)
	}
	whole := map[string]any{}
	if err := yaml.Unmarshal([]byte(chart), &whole); err != nil {
		return "", fmt.Errorf("read Chart.yaml: %w", err)
	}
	annotations, ok := whole["annotations"].(map[string]any)
	if !ok {
		return "", fmt.Errorf("Chart.yaml has no annotations")
	}
	for name, value := range shown {
		content, err := yaml.Marshal(value)
		if err != nil {
			return "", fmt.Errorf("write the annotation %s: %w", name, err)
		}
		annotations["artifacthub.io/"+name] = string(content)
	}
	annotations["artifacthub.io/prerelease"] = fmt.Sprint(strings.Contains(version, "-"))
	content, err := yaml.Marshal(whole)
	return string(content), err
}

// definition is what is shown of a CustomResourceDefinition.
type definition struct {
	Metadata struct{ Name string }
	Spec     struct {
		Names    struct{ Kind string }
		Versions []struct {
			Name   string
			Schema struct {
				OpenAPIV3Schema struct{ Description string }
			}
		}
	}
}

// hubDefinitions are those of all custom resources, in the version that kubectl shows.
func hubDefinitions() (all []hubDefinition, err error) {
	for _, folder := range []string{"base/crds", "remote/crds", "network/program/crds"} {
		files, err := fs.Glob(deploy.Files, folder+"/*_*.yaml")
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", folder, err)
		}
		for _, file := range files {
			content, err := fs.ReadFile(deploy.Files, file)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", file, err)
			}
			var definition definition
			if err := yaml.Unmarshal(content, &definition); err != nil {
				return nil, fmt.Errorf("read %s: %w", file, err)
			}
			shown := definition.Spec.Versions[0]
			for _, v := range definition.Spec.Versions {
				if v.Name > shown.Name { // v1alpha1 and v1beta1
					shown = v
				}
			}
			description, _, _ := strings.Cut(shown.Schema.OpenAPIV3Schema.Description, "\n\n")
			kind := definition.Spec.Names.Kind
			all = append(all, hubDefinition{Kind: kind, Version: shown.Name, Name: definition.Metadata.Name, DisplayName: kind,
				Description: strings.Join(strings.Fields(description), " ")})
		}
	}
	return all, nil
}

// hubExamples are the objects of such kinds in the examples.
func hubExamples(definitions []hubDefinition) (all []map[string]any, err error) {
	files, err := fs.Glob(deploy.Examples, "examples/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list examples: %w", err)
	}
	for _, file := range files {
		content, err := fs.ReadFile(deploy.Examples, file)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			object := map[string]any{}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				return nil, fmt.Errorf("read %s: %w", path.Base(file), err)
			}
			group, _, _ := strings.Cut(fmt.Sprint(object["apiVersion"]), "/")
			if slices.ContainsFunc(definitions, func(d hubDefinition) bool {
				return d.Kind == object["kind"] && strings.HasSuffix(d.Name, "."+group)
			}) {
				all = append(all, object)
			}
		}
	}
	return all, nil
}

// texts returns the templates of a chart.
func texts(content map[string]string) (all []string) {
	for _, place := range slices.Sorted(maps.Keys(content)) {
		if strings.HasPrefix(place, "templates/") {
			all = append(all, content[place])
		}
	}
	return all
}
