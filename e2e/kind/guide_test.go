package kind

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/built"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

const (
	// guided is the namespace of docs/guide.md.
	guided = "shop"
	// theDashboard goes on until somebody ends it, so the guide has it in a second terminal.
	theDashboard = "kubectl lodestone dashboard"
	// takesDown is the one command of the guide that is not run: its script ends the run of the suite.
	takesDown = "make e2e-down"
)

// aVersion is a version of Kubernetes.
var aVersion = regexp.MustCompile(`\bv1\.\d+\.\d+\b`)

// step is what a reader of the guide pastes into a shell, and what the page shows of the answer.
type step struct{ commands, shown string }

var fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)\n```$")

// steps returns what the section with a heading has its reader do, in order. It is pure: output is in the
// block `text` right behind the block `sh`.
func steps(page, heading string) (found []step) {
	_, section, _ := strings.Cut(page, "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	end := 0
	for _, at := range fenced.FindAllStringSubmatchIndex(section, -1) {
		language, content := section[at[2]:at[3]], section[at[4]:at[5]]
		switch {
		case language == "sh":
			found = append(found, step{commands: strings.TrimSpace(content)})
		case language == "text" && len(found) > 0 && strings.TrimSpace(section[end:at[0]]) == "":
			found[len(found)-1].shown = content
		}
		end = at[1]
	}
	return found
}

// another is what is different each time: times, ages, UIDs, and what Kubernetes puts at the end of names.
var another = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|\b\d\d:\d\d:\d\d\b|\b(?:\d+(?:\.\d+)?(?:ms|[smhd]))+\b|` +
	`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|-[bcdfghjklmnpqrstvwxz2456789]{5,10}\b`)

// differs says which line that a page shows is not in the output, or which line of the output the page does
// not show; empty: none. It is pure. In what is shown, … stands for any text and, alone in a line, for any lines.
func differs(shown, output string) string {
	lines := func(text string) (all []string) {
		for line := range strings.Lines(text) {
			if fields := strings.Fields(another.ReplaceAllString(line, "<other>")); len(fields) > 0 {
				all = append(all, strings.Join(fields, " "))
			}
		}
		return all
	}
	left, gap := lines(output), false
	for _, want := range lines(shown) {
		if want == "…" {
			gap = true
			continue
		}
		is := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*") + "$")
		i := 0
		for gap && i < len(left) && !is.MatchString(left[i]) {
			i++
		}
		if i == len(left) {
			return fmt.Sprintf("the page shows %q, which was not printed", want)
		}
		if !is.MatchString(left[i]) {
			return fmt.Sprintf("the page shows %q, and printed was %q", want, left[i])
		}
		left, gap = left[i+1:], false
	}
	if len(left) > 0 && !gap {
		return fmt.Sprintf("printed was %q, which the page does not show", left[0])
	}
	return ""
}

func TestThePageIsComparedWithWhatIsPrinted(t *testing.T) {
	for name, test := range map[string]struct{ shown, output, differs string }{
		"the same":                     {"one\ntwo\n", "one\ntwo\n", ""},
		"other columns":                {"NAME   AGE\n", "NAME AGE\n\n", ""},
		"another age":                  {"db-0  Running  3m12s\n", "db-0  Running  45s\n", ""},
		"another time":                 {"seen at 2026-01-02T03:04:05Z, [10:11:12]", "seen at 2026-11-25T10:00:00.123Z, [01:02:03]", ""},
		"another name":                 {"finalize data-db-0-h59v5", "finalize data-db-0-x2c4k", ""},
		"another UID":                  {"pvc-6c2f1a00-0000-4000-8000-000000000000", "pvc-5d339c9f-4b76-4f42-81e9-daebd2717027", ""},
		"lines that are left out":      {"one\n…\nfour\n", "one\ntwo\nthree\nfour\n", ""},
		"none that is left out":        {"one\n…\nfour\n", "one\nfour\n", ""},
		"the end is left out":          {"one\n…\n", "one\ntwo\n", ""},
		"text that is left out":        {"at http://127.0.0.1:…/ it is", "at http://127.0.0.1:41763/f00/ it is", ""},
		"another sentence":             {"moved to west\n", "moved to home\n", `the page shows "moved to west", and printed was "moved to home"`},
		"another count":                {"1000\n", "999\n", `the page shows "1000", and printed was "999"`},
		"a line less":                  {"one\ntwo\n", "one\n", `the page shows "two", which was not printed`},
		"a line more":                  {"one\n", "one\ntwo\n", `printed was "two", which the page does not show`},
		"not found behind a gap":       {"one\n…\nfour\n", "one\ntwo\n", `the page shows "four", which was not printed`},
		"nothing shown, and something": {"", "one\n", `printed was "one", which the page does not show`},
	} {
		assert.Equal(t, test.differs, differs(test.shown, test.output), name)
	}
}

// terminal is a shell that a reader of the guide has opened at the top of the tree. It ends with the first
// command that fails.
type terminal struct {
	commands io.Writer
	output   *bufio.Reader
	shell    *exec.Cmd
}

func openTerminal(ctx context.Context, t *testing.T) *terminal {
	t.Helper()
	shell := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail")
	shell.Dir = filepath.Join("..", "..")
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	// What a reader has: nothing of the make that runs the suite, nor of what its scripts set.
	shell.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"KUBECONFIG", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "RUN"}, name)
	})
	if socket := filepath.Join(cache(), "engine", "docker.sock"); exists(socket) {
		shell.Env = append(shell.Env, "DOCKER_HOST=unix://"+socket)
	}
	commands, err := shell.StdinPipe()
	require.NoError(t, err)
	output, printed, err := os.Pipe()
	require.NoError(t, err)
	shell.Stdout, shell.Stderr = printed, printed
	require.NoError(t, shell.Start())
	require.NoError(t, printed.Close())
	t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGTERM)
		_ = shell.Wait()
		_ = output.Close()
	})
	return &terminal{commands: commands, output: bufio.NewReader(output), shell: shell}
}

// paste gives the shell some commands.
func (s *terminal) paste(t *testing.T, commands, more string) {
	t.Helper()
	_, err := fmt.Fprintf(s.commands, "{\n%s\n} </dev/null\n%s\n", commands, more)
	require.NoError(t, err)
}

// run has the shell run commands to their end, and returns what they printed.
func (s *terminal) run(t *testing.T, commands string) string {
	t.Helper()
	const done = "that is done"
	s.paste(t, commands, "echo; echo "+done)
	var printed strings.Builder
	for {
		line, err := s.output.ReadString('\n')
		if strings.TrimSpace(line) == done {
			return printed.String()
		}
		printed.WriteString(line)
		require.NoError(t, err, "the shell has ended, for one of these commands failed:\n%s\nprinted was:\n%s", commands, &printed)
	}
}

// guide returns the steps of docs/guide.md on the clusters of the suite.
func guide(t *testing.T) []step {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide.md"))
	require.NoError(t, err)
	return steps(string(page), "On two kind clusters")
}

func TestTheStepsOfTheGuideAreFound(t *testing.T) {
	all, dashboards := guide(t), 0
	require.Greater(t, len(all), 8)
	assert.Equal(t, "make e2e-up", all[0].commands)
	assert.Contains(t, all[0].shown, "Two clusters run")
	assert.Equal(t, step{commands: takesDown}, all[len(all)-1])
	for _, step := range all {
		assert.NotContains(t, step.commands, "```")
		if strings.HasSuffix(step.commands, theDashboard) {
			dashboards++
		}
	}
	assert.Equal(t, 1, dashboards)
	for _, file := range []string{"docs/guide.md", "deploy/examples/database.yaml"} {
		content, err := os.ReadFile(filepath.Join("..", "..", file))
		require.NoError(t, err)
		assert.Contains(t, string(content), image, "%s names the image that the clusters have", file)
	}
}

// TestTheGuideIsDoneAsItStands does what docs/guide.md says, command by command, and compares what it shows.
func TestTheGuideIsDoneAsItStands(t *testing.T) {
	testbed.NotInShort(t)
	needsClusters(t)
	if os.Getenv("E2E_CLASS") == "disk" {
		t.Skip("the guide shows the class standard")
	}
	_, err := home.client.CoreV1().Namespaces().Get(t.Context(), guided, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "namespace %s is there already: delete it first (%v)", guided, err)
	all := guide(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	first, ran := openTerminal(ctx, t), 0
	for _, step := range all {
		began := time.Now()
		switch {
		case step.commands == takesDown:
			continue
		case strings.HasSuffix(step.commands, theDashboard):
			requireDashboard(ctx, t, step)
		default:
			printed := first.run(t, step.commands)
			if os.Getenv(built.Variable) != "" { // the clusters have another Kubernetes than that of the page
				printed = aVersion.ReplaceAllString(printed, built.KubernetesVersion)
			}
			assert.Empty(t, differs(step.shown, printed), "after\n%s", step.commands)
			t.Log(printed)
		}
		ran++
		t.Logf("%s: %s", time.Since(began).Round(100*time.Millisecond), step.commands)
	}
	assert.Equal(t, len(all)-1, ran, "all but %q", takesDown)
}

// requireDashboard opens the dashboard in a terminal of its own, where it stays, and looks at the page.
func requireDashboard(ctx context.Context, t *testing.T, step step) {
	t.Helper()
	second := openTerminal(ctx, t)
	second.paste(t, step.commands, "")
	var printed strings.Builder
	for range len(strings.Split(step.shown, "\n")) {
		line, err := second.output.ReadString('\n')
		printed.WriteString(line)
		require.NoError(t, err, "the dashboard has ended; printed was:\n%s", &printed)
	}
	assert.Empty(t, differs(step.shown, printed.String()), "after\n%s", step.commands)
	address := regexp.MustCompile(`http://127\.0\.0\.1:\S+`).FindString(printed.String())
	require.NotEmpty(t, address, "the address of the dashboard")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Contains(t, string(content), "<title>")
}
