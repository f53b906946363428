package monitoring_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"

	extender "github.com/lodestone-storage/lodestone/extender/metrics"
)

const root = "../.."

var ourName = regexp.MustCompile(`^lodestone_[a-z_]+$`)

// ours returns the names of the metrics that the programs' sources define.
func ours(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, program := range []string{"extender", "provisioner", "virtualnode", "remoteagent", "pkg"} {
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
