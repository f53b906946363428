// Package monitoring_test checks the dashboard and the rules of
// deploy/components/monitoring against the programs that they are about.
package monitoring_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"
	"sigs.k8s.io/yaml"

	extender "github.com/lodestone-storage/lodestone/extender/metrics"
)

var component = filepath.Join(root, "deploy", "components", "monitoring")

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}

// panel is what the tests look at of a panel of Grafana.
type panel struct {
	ID         int    `json:"id"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	Datasource struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	GridPos struct {
		H, W, X, Y int
	} `json:"gridPos"`
	Targets []struct {
		Expr  string `json:"expr"`
		RefID string `json:"refId"`
	} `json:"targets"`
}

func TestDashboardShowsWhatIsExposed(t *testing.T) {
	var dashboard struct {
		UID    string  `json:"uid"`
		Panels []panel `json:"panels"`
	}
	require.NoError(t, json.Unmarshal(read(t, filepath.Join(component, "dashboard.json")), &dashboard))
	assert.Equal(t, "lodestone", dashboard.UID)
	names := exposed(t)
	ids, cells := map[int]string{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		assert.Empty(t, ids[p.ID], "%s has the id of another panel", p.Title)
		ids[p.ID] = p.Title
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				assert.Empty(t, cells[cell], "%s lies over another panel", p.Title)
				assert.Less(t, cell[0], 24, "%s is beyond the edge", p.Title)
				cells[cell] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		assert.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		assert.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			assert.NotEmpty(t, target.RefID, p.Title)
			assert.Regexp(t, metricName, target.Expr, p.Title)
			assert.Empty(t, unknown(names, target.Expr), p.Title)
		}
	}
}

func TestRulesWatchWhatIsExposed(t *testing.T) {
	var rule struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert       string            `json:"alert"`
					Expr        string            `json:"expr"`
					Labels      map[string]string `json:"labels"`
					Annotations map[string]string `json:"annotations"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(read(t, filepath.Join(component, "prometheusrule.yaml")), &rule))
	require.NotEmpty(t, rule.Spec.Groups)
	names := exposed(t)
	seen := map[string]bool{}
	for _, group := range rule.Spec.Groups {
		for _, r := range group.Rules {
			assert.False(t, seen[r.Alert], "%s is there twice", r.Alert)
			seen[r.Alert] = true
			assert.Regexp(t, metricName, r.Expr, r.Alert)
			assert.Empty(t, unknown(names, r.Expr), r.Alert)
			assert.Empty(t, unknown(names, r.Annotations["description"]), r.Alert)
			assert.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], r.Alert)
			assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
			assert.NotEmpty(t, r.Annotations["description"], r.Alert)
		}
	}
}

func TestEachMetricIsDocumented(t *testing.T) {
	documented := map[string]bool{}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range pages {
		for _, name := range metricName.FindAllString(string(read(t, page)), -1) {
			documented[name] = true
		}
	}
	for name := range ours(t) {
		assert.True(t, documented[name], "%s is in no page of docs", name)
	}
}

func TestDocumentationNamesWhatIsExposed(t *testing.T) {
	names := exposed(t)
	for _, page := range []string{"monitoring.md", "scheduling.md", "troubleshooting.md", "virtual-nodes.md", "reflection.md",
		"remote-agent.md", "network.md"} {
		for _, name := range unknown(names, string(read(t, filepath.Join(root, "docs", page)))) {
			assert.False(t, strings.HasPrefix(name, "lodestone_"), "docs/%s names %s, which no program exposes", page, name)
		}
	}
}

func TestPodMonitorFindsEachProgram(t *testing.T) {
	var monitor struct {
		Spec struct {
			Selector            struct{ MatchLabels map[string]string }
			NamespaceSelector   struct{ MatchNames []string }
			PodMetricsEndpoints []struct{ Port string }
		}
	}
	require.NoError(t, yaml.Unmarshal(read(t, filepath.Join(component, "podmonitor.yaml")), &monitor))
	require.Len(t, monitor.Spec.PodMetricsEndpoints, 1)
	for _, path := range []string{"base/extender", "base/provisioner", "components/second-scheduler", "components/virtual-node/workload",
		"network/program/probe.yaml"} {
		if filepath.Ext(path) == "" {
			path = filepath.Join(path, "deployment.yaml")
		}
		var deployment appsv1.Deployment
		document, _, _ := strings.Cut(string(read(t, filepath.Join(root, "deploy", path))), "\n---\n")
		require.NoError(t, yaml.Unmarshal([]byte(document), &deployment))
		var ports []string
		for _, container := range deployment.Spec.Template.Spec.Containers {
			for _, port := range container.Ports {
				ports = append(ports, port.Name)
			}
		}
		assert.Contains(t, monitor.Spec.NamespaceSelector.MatchNames, deployment.Namespace, path)
		assert.Contains(t, ports, monitor.Spec.PodMetricsEndpoints[0].Port, path)
		for label, value := range monitor.Spec.Selector.MatchLabels {
			// Labels that kustomize adds to the template are those of the selector.
			assert.Equal(t, value, deployment.Spec.Selector.MatchLabels[label], path)
		}
	}
}

const root = "../.."

var ourName = regexp.MustCompile(`^lodestone_[a-z_]+$`)

// ours returns the names of the metrics that the programs' sources define.
func ours(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, program := range []string{"extender", "provisioner", "virtualnode", "remoteagent", "network", "pkg"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, program), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil && ourName.MatchString(text) {
						names[text] = true
					}
				}
				return true
			})
			return nil
		}))
	}
	require.Contains(t, names, "lodestone_extender_requests_total")
	require.Contains(t, names, "lodestone_provisioner_steps_total")
	return names
}

// exposed returns the names of ours and of what libraries expose.
func exposed(t *testing.T) map[string]bool {
	t.Helper()
	names := maps.Clone(ours(t))
	families, err := extender.New().Registry().Gather()
	require.NoError(t, err)
	for _, family := range families {
		names[family.GetName()] = true
	}
	library := metrics.New("controller")
	for _, collector := range []prometheus.Collector{library.PersistentVolumeClaimProvisionTotal, library.PersistentVolumeDeleteTotal} {
		descriptions := make(chan *prometheus.Desc, 1)
		collector.Describe(descriptions)
		name := regexp.MustCompile(`fqName: "([a-z_]+)"`).FindStringSubmatch((<-descriptions).String())
		require.Len(t, name, 2)
		names[name[1]] = true
	}
	return names
}

var metricName = regexp.MustCompile(`\b(?:lodestone|controller|go|process)_[a-z0-9_]+\b`)

// unknown returns the names in a text that no program exposes.
func unknown(names map[string]bool, text string) []string {
	var missing []string
	for _, name := range metricName.FindAllString(text, -1) {
		histogram := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			histogram = strings.TrimSuffix(histogram, suffix)
		}
		if !names[name] && !names[histogram] {
			missing = append(missing, name)
		}
	}
	return missing
}
