// Command chart writes the Helm chart. Its templates are made of the manifests that kubectl lodestone install applies,
// with every choice that these have, so chart and kustomizations cannot differ; what people write and read of a chart
// is in files/.
package main

import (
	"embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed files/*
var files embed.FS

// places are where the files go in the chart.
var places = map[string]string{
	"Chart.yaml": "Chart.yaml", "values.yaml": "values.yaml", "values.schema.json": "values.schema.json",
	"_helpers.tpl": "templates/_helpers.tpl", "NOTES.txt": "templates/NOTES.txt",
}

func main() {
	to := flag.String("to", "bin/chart", "directory that the chart is written to, as lodestone/")
	version := flag.String("version", "v0.0.0-dev", "version of the chart and tag of the images")
	changes := flag.String("changelog", "CHANGELOG.md", "file that says what is new")
	flag.Parse()
	if err := run(*to, *version, *changes); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(to, version, file string) error {
	changes, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read what is new: %w", err)
	}
	content, err := contents(version, string(changes))
	if err != nil {
		return err
	}
	return write(filepath.Join(to, "lodestone"), content)
}

// contents are the files of the chart, by their place in it. changes is what CHANGELOG.md says.
func contents(version, changes string) (map[string]string, error) {
	content := map[string]string{}
	for name, place := range places {
		file, err := files.ReadFile("files/" + name)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		content[place] = string(file)
	}
	for _, role := range []string{home, remote} {
		template, err := templates(role)
		if err != nil {
			return nil, err
		}
		content["templates/"+role+".yaml"] = template
	}
	var err error
	content["Chart.yaml"], err = annotate(strings.ReplaceAll(content["Chart.yaml"], "VERSION", version), version, changes, texts(content))
	return content, err
}

// write writes files to a directory, which it makes anew.
func write(directory string, content map[string]string) error {
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	for place, text := range content {
		path := filepath.Join(directory, place)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
