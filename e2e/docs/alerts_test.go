package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// repository is the address of this project, from its module path.
func repository(t *testing.T) string {
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	module := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(data)
	require.NotNil(t, module)
	return "https://" + string(module[1])
}

// TestEachAlertLeadsToItsHeading follows the runbook_url of each alert in deploy/ to the page in this tree.
func TestEachAlertLeadsToItsHeading(t *testing.T) {
	all, before, alerts := pages(t), repository(t)+"/blob/main/", map[string]bool{}
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "deploy"), func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil || !regexp.MustCompile(`(?m)^kind: PrometheusRule$`).Match(data) {
			return err
		}
		var rule struct {
			Spec struct {
				Groups []struct {
					Rules []struct {
						Alert       string
						Annotations map[string]string
					}
				}
			}
		}
		if err := yaml.Unmarshal(data, &rule); err != nil {
			return err
		}
		for _, group := range rule.Spec.Groups {
			for _, r := range group.Rules {
				if r.Alert == "" {
					continue // what only records
				}
				alerts[strings.ToLower(r.Alert)] = true
				where, ours := strings.CutPrefix(r.Annotations["runbook_url"], before)
				assert.True(t, ours, "%s: runbook_url does not begin with %s", r.Alert, before)
				name, mark, _ := strings.Cut(where, "#")
				assert.True(t, all[name].anchors[mark], "%s: %s has no heading #%s", r.Alert, name, mark)
				assert.Equal(t, strings.ToLower(r.Alert), mark)
			}
		}
		return nil
	}))
	require.NotEmpty(t, alerts)
	for mark := range all["docs/alerts.md"].anchors {
		assert.True(t, mark == "alerts" || alerts[mark], "docs/alerts.md: no rule has the alert #%s", mark)
	}
}
