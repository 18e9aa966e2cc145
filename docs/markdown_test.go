package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// block is a fenced block of a page.
type block struct {
	file, heading, lang string
	line                int // of the fence
	text                string
}

// blocks returns the fenced blocks of a page.
func blocks(t *testing.T, file string) []block {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var (
		all     []block
		heading string
		open    *block
	)
	for i, line := range strings.SplitAfter(string(text), "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open != nil:
			all = append(all, *open)
			open = nil
		case isFence:
			open = &block{file: file, heading: heading, lang: fence, line: i + 1}
		case open != nil:
			open.text += line
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	require.Nil(t, open, "%s: a block is not closed", file)
	return all
}

// under returns the first block of a language below a heading.
func under(t *testing.T, all []block, heading, lang string) block {
	t.Helper()
	for _, b := range all {
		if b.heading == heading && b.lang == lang {
			return b
		}
	}
	require.Failf(t, "block not found", "no %s under %q", lang, heading)
	return block{}
}

// pages returns the Markdown files of the documentation.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"../*.md", "*.md", "design/*.md", "directives/*.md", "../deploy/*.md", "../authsigner/testdata/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		all = append(all, found...)
	}
	require.NotEmpty(t, all)
	return all
}

func TestRelativeLinksAreNotBroken(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, file := range pages(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			name, anchor, _ := strings.Cut(m[1], "#")
			target := file
			if name != "" {
				target = filepath.Join(filepath.Dir(file), name)
			}
			info, err := os.Stat(target)
			if !assertLink(t, err == nil, file, m[1]) || anchor == "" || info.IsDir() {
				continue
			}
			assertLink(t, anchors(t, target)[anchor], file, m[1])
		}
	}
}

func assertLink(t *testing.T, ok bool, file, link string) bool {
	t.Helper()
	if !ok {
		t.Errorf("%s: broken link %s", file, link)
	}
	return ok
}

// anchors returns the anchors that GitHub generates for the headings of a page.
func anchors(t *testing.T, file string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	drop := regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
	names := map[string]bool{}
	fenced := false
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if heading := strings.TrimLeft(line, "#"); !fenced && heading != line {
			name := drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			names[strings.ReplaceAll(name, " ", "-")] = true
		}
	}
	return names
}
