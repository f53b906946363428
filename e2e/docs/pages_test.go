// Package docs tests that what the pages and the examples say is so: that links lead somewhere, that the tests that
// they name exist, and that examples for other programs do what they should.
package docs

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// page is a Markdown file of this tree.
type page struct {
	path    string // from the root
	lines   []string
	anchors map[string]bool
}

// pages reads all of them, by path. Lines of code blocks are empty, so that numbers of lines stay.
func pages(t *testing.T) map[string]page {
	all := map[string]page{}
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			name, err := filepath.Rel(root, file)
			require.NoError(t, err)
			p := page{path: name, anchors: map[string]bool{}}
			code := false
			for line := range strings.Lines(string(data)) {
				line = strings.TrimSuffix(line, "\n")
				if strings.HasPrefix(strings.TrimSpace(line), "```") {
					code = !code
					line = ""
				}
				if code {
					line = ""
				}
				if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
					p.anchors[anchor(title)] = true
				}
				p.lines = append(p.lines, line)
			}
			all[name] = p
		}
	}
	require.Greater(t, len(all), 20, "the pages are found")
	return all
}

var linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// anchor is what GitHub makes of a heading.
func anchor(title string) string {
	title = linkText.ReplaceAllString(title, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, title)
}

// each calls check for each match of a pattern in the text of the pages.
func each(t *testing.T, pattern string, check func(p page, line int, match []string)) {
	t.Helper()
	expression, found := regexp.MustCompile(pattern), 0
	all := pages(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for i, line := range all[name].lines {
			for _, match := range expression.FindAllStringSubmatch(line, -1) {
				found++
				check(all[name], i+1, match)
			}
		}
	}
	require.NotZero(t, found, "nothing matches %s", pattern)
}

func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	each(t, "`[^`]*`|\\]\\(([^)\\s]+)\\)", func(p page, line int, match []string) {
		if match[1] == "" {
			return // what is set as code is no link
		}
		target, mark, _ := strings.Cut(match[1], "#")
		if strings.Contains(target, "://") {
			return
		}
		to := p.path
		if target != "" {
			to = path.Join(path.Dir(p.path), target)
		}
		_, err := os.Stat(filepath.Join(root, to))
		assert.NoError(t, err, "%s:%d: %s", p.path, line, match[1])
		if mark != "" {
			assert.True(t, all[to].anchors[mark], "%s:%d: no heading of %s has the anchor %s", p.path, line, to, mark)
		}
	})
}

func TestEachPageIsListedInREADME(t *testing.T) {
	all := pages(t)
	readme := strings.Join(all["README.md"].lines, "\n")
	for name := range all {
		if strings.HasPrefix(name, "docs/") {
			assert.Contains(t, readme, "("+name, "README.md does not name %s", name)
		}
	}
}

func TestEachPageBeginsWithTheQuestionThatItAnswers(t *testing.T) {
	for name, page := range pages(t) {
		if !strings.HasPrefix(name, "docs/") {
			continue
		}
		var text []string
		for _, line := range page.lines {
			if line != "" && !strings.HasPrefix(line, "<!--") {
				text = append(text, line)
			}
		}
		require.Greater(t, len(text), 2, name)
		assert.True(t, strings.HasPrefix(text[0], "# "), "%s: the first line is %q", name, text[0])
		assert.True(t, strings.HasSuffix(text[1], "?"), "%s: the first paragraph is %q", name, text[1])
	}
}

// TestEachLimitLeadsToWhereItIsDecided: a limit that is said in its list alone is found too late.
func TestEachLimitLeadsToWhereItIsDecided(t *testing.T) {
	text := strings.Join(pages(t)["docs/limits.md"].lines, "\n")
	limits := regexp.MustCompile(`(?m)^- `).Split(text, -1)[1:]
	require.Greater(t, len(limits), 10)
	for _, limit := range limits {
		assert.Regexp(t, `\]\([a-z]`, limit)
	}
}

// TestCellsOfTablesAreShort: what is longer belongs under its table. Generated pages have the comments of the code.
func TestCellsOfTablesAreShort(t *testing.T) {
	const longest = 310
	each(t, `^\|.*\|$`, func(p page, line int, match []string) {
		if strings.HasPrefix(p.lines[0], "<!--") {
			return
		}
		for cell := range strings.SplitSeq(linkText.ReplaceAllString(match[0], "$1"), "|") {
			assert.LessOrEqual(t, len([]rune(strings.TrimSpace(cell))), longest, "%s:%d: %s", p.path, line, cell)
		}
	})
}

func TestNamedTargetsExist(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	each(t, "`make ([a-z][a-z0-9-]*)", func(p page, line int, match []string) {
		exists := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(match[1]) + `:`).Match(data)
		assert.True(t, exists, "%s:%d: the Makefile has no target %s", p.path, line, match[1])
	})
}

// tests returns the names of all tests, by the folder that they are in.
func tests(t *testing.T) map[string]map[string]bool {
	function, all := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`), map[string]map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "bin" || strings.HasPrefix(entry.Name(), ".") && file != root) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(file))
		for _, match := range function.FindAllStringSubmatch(string(data), -1) {
			if all[folder] == nil {
				all[folder] = map[string]bool{}
			}
			all[folder][match[1]] = true
		}
		return err
	}))
	return all
}

func TestNamedTestsExist(t *testing.T) {
	all := tests(t)
	in := func(p page, line int, folder, names string) {
		for _, name := range regexp.MustCompile(`Test\w+`).FindAllString(names, -1) {
			assert.True(t, all[folder][name], "%s:%d: there is no %s in %s", p.path, line, name, folder)
		}
	}
	t.Run("package: tests", func(t *testing.T) {
		each(t, "`([a-z0-9/-]+): (Test[^`]+)`", func(p page, line int, match []string) { in(p, line, match[1], match[2]) })
	})
	t.Run("tests in package", func(t *testing.T) {
		each(t, "(`Test\\w+`(?:(?:,| and|, and) `Test\\w+`)*) in `([a-z0-9/-]+)`", func(p page, line int, match []string) {
			in(p, line, match[2], match[1])
		})
	})
	t.Run("package (tests)", func(t *testing.T) {
		each(t, "`([a-z0-9/-]+)` \\((`Test[^)]+)\\)", func(p page, line int, match []string) { in(p, line, match[1], match[2]) })
	})
	t.Run("any", func(t *testing.T) {
		each(t, `\bTest[A-Z]\w+`, func(p page, line int, match []string) {
			for _, names := range all {
				for name := range names {
					// RUN= takes the beginning of names.
					if name == match[0] || strings.Contains(p.lines[line-1], "RUN="+match[0]) && strings.HasPrefix(name, match[0]) {
						return
					}
				}
			}
			assert.Fail(t, "there is no such test", "%s:%d: %s", p.path, line, match[0])
		})
	})
}

// TestNamedFilesExist checks what is set as code and begins with a folder of this tree.
func TestNamedFilesExist(t *testing.T) {
	const folders = `deploy|docs|e2e|extender|hack|kubectl-lodestone|mover|network|pkg|provisioner|remoteagent|virtualnode|\.tools`
	each(t, "`((?:"+folders+")/[^`\\s:<…]*)", func(p page, line int, match []string) {
		// Those of the user, which install.md has them make.
		if strings.HasPrefix(match[1], "deploy/overlays/mine") {
			return
		}
		found, err := filepath.Glob(filepath.Join(root, strings.TrimSuffix(strings.ReplaceAll(match[1], "...", "*"), ",")))
		require.NoError(t, err)
		assert.NotEmpty(t, found, "%s:%d: there is no %s", p.path, line, match[1])
	})
}
