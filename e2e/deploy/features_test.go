package deploy

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

var (
	featureMetric = regexp.MustCompile(`^kubernetes_feature_enabled\{name="([^"]+)",stage="([^"]*)"\} ([01])$`)
	pageAPI       = regexp.MustCompile("^`((?:[a-z0-9.]+/)?v[0-9a-z]+)`$")
)

// rows returns the cells of the tables of a page whose first row begins so, that one first.
func rows(page, first string) (found [][]string) {
	scanner := bufio.NewScanner(strings.NewReader(page))
	inside := false
	for scanner.Scan() {
		line := scanner.Text()
		if strings.HasPrefix(line, first) {
			inside = true
		}
		if !strings.HasPrefix(line, "|") {
			inside = false
		}
		if !inside || strings.HasPrefix(line, "| ---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		found = append(found, cells)
	}
	return found
}

// TestThePageOfFeatureGatesIsTrue compares it with what this version of Kubernetes says.
func TestThePageOfFeatureGatesIsTrue(t *testing.T) {
	testbed.Require(t)
	content, err := os.ReadFile(filepath.Join(fabric.Root(), "docs", "kubernetes-features.md"))
	require.NoError(t, err)
	page := string(content)
	version, err := cluster.Client().Discovery().ServerVersion()
	require.NoError(t, err)
	metrics, err := cluster.Client().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	says := map[string]string{}
	for line := range bytes.Lines(metrics) {
		if gate := featureMetric.FindStringSubmatch(strings.TrimSpace(string(line))); gate != nil {
			state := map[string]string{"ALPHA": "alpha", "BETA": "beta", "": "GA"}[gate[2]]
			if state == "alpha" || state == "beta" {
				state += map[string]string{"0": ", off", "1": ", on"}[gate[3]]
			}
			says[gate[1]] = state
		}
	}
	require.Greater(t, len(says), 50)

	gates := rows(page, "| gate | 1.34 |")
	require.Greater(t, len(gates), 10)
	column := 0
	for i, cell := range gates[0] {
		if cell == version.Major+"."+version.Minor {
			column = i
		}
	}
	require.Positive(t, column, "the page has no column for %s.%s", version.Major, version.Minor)
	for _, row := range gates[1:] {
		name := strings.Trim(row[0], "`")
		want := says[name]
		if want == "" {
			want = "–"
		}
		assert.Equal(t, want, row[column], "feature gate %s in %s", name, version)
	}

	served, err := cluster.Client().Discovery().ServerGroups()
	require.NoError(t, err)
	there := map[string]bool{"v1": true}
	for _, group := range served.Groups {
		for _, v := range group.Versions {
			there[v.GroupVersion] = true
		}
	}
	found := 0
	for _, row := range rows(page, "| API | kinds |")[1:] {
		api := pageAPI.FindStringSubmatch(row[0])
		// Reviews are only sent to webhooks, and the scheduler alone reads its configuration.
		if api == nil || api[1] == "admission.k8s.io/v1" || api[1] == "kubescheduler.config.k8s.io/v1" ||
			strings.Contains(row[1], "not Kubernetes' own") {
			continue
		}
		found++
		assert.True(t, there[api[1]], "%s is not served by %s", api[1], version)
	}
	assert.Greater(t, found, 10)
}
