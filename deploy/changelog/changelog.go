// Package changelog reads CHANGELOG.md, for the notes of a release and the annotations of the chart.
package changelog

import (
	"fmt"
	"regexp"
	"strings"
)

// definitions are those of links, at the end of the file.
var definitions = regexp.MustCompile(`(?m)^\[[^\]]+\]: .*$`)

// Section returns what CHANGELOG.md says of a version, such as v0.1.0: of a candidate or a snapshot, what is unreleased.
func Section(content, version string) (string, error) {
	title := "Unreleased"
	if !strings.Contains(version, "-") {
		title = strings.TrimPrefix(version, "v")
	}
	_, section, found := strings.Cut(content, "\n## ["+title+"]")
	if !found {
		return "", fmt.Errorf("CHANGELOG.md has no section [%s]: give what is unreleased this title, with the date", title)
	}
	_, section, _ = strings.Cut(section, "\n") // the date
	section, _, _ = strings.Cut(section, "\n## [")
	section = strings.TrimSpace(definitions.ReplaceAllString(section, ""))
	if section == "" {
		return "", fmt.Errorf("CHANGELOG.md says nothing under [%s]: say what is new for users", title)
	}
	return section, nil
}

// Change is a point of a section, without links.
type Change struct {
	// Kind is the title above it, in small letters: added, changed, deprecated, removed, fixed or security.
	Kind        string `json:"kind"`
	Description string `json:"description"`
}

var (
	kinds = regexp.MustCompile(`^### (Added|Changed|Deprecated|Removed|Fixed|Security)$`)
	links = regexp.MustCompile(`\[([^\]]+)\]\([^)]*\)`)
)

// Changes returns the points of a section; what stands under other titles, such as known limits, is left out.
func Changes(section string) (all []Change) {
	var kind string
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		point, begins := strings.CutPrefix(line, "- ")
		switch {
		case strings.HasPrefix(line, "#"):
			kind = ""
			if title := kinds.FindStringSubmatch(line); title != nil {
				kind = strings.ToLower(title[1])
			}
		case kind == "" || line == "":
		case begins:
			all = append(all, Change{Kind: kind, Description: point})
		case len(all) > 0:
			all[len(all)-1].Description += " " + line
		}
	}
	for i := range all {
		all[i].Description = links.ReplaceAllString(all[i].Description, "$1")
	}
	return all
}
