package changelog

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const content = `# Changelog

## [Unreleased]

The next one.

### Added

- One thing, over
  two lines: [its page](docs/page.md#it).
- Another.

### Known limits

- What is not there.

### Fixed

- A fault.

## [0.1.0] - 2026-01-01

### Security

- A hole.

[Unreleased]: https://example.com
`

func TestChangesAreThoseOfTheVersion(t *testing.T) {
	for version, want := range map[string][]Change{
		"v0.2.0-rc.1": {{"added", "One thing, over two lines: its page."}, {"added", "Another."}, {"fixed", "A fault."}},
		"v0.1.0":      {{"security", "A hole."}},
	} {
		section, err := Section(content, version)
		require.NoError(t, err)
		assert.Equal(t, want, Changes(section), version)
	}
	_, err := Section(content, "v0.3.0")
	assert.ErrorContains(t, err, "no section [0.3.0]")
	_, err = Section("\n## [0.1.0]\n\n[0.1.0]: https://example.com\n", "v0.1.0")
	assert.ErrorContains(t, err, "says nothing under [0.1.0]")
}
