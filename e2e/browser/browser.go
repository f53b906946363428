// Package browser drives a headless Chromium for tests, by the DevTools protocol. Start it with Start,
// open a page with Tab; Page has what tests do and see.
package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
)

// programs are the names that Chromium has.
var programs = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// endpoint is what Chromium writes when it can be driven.
var endpoint = regexp.MustCompile(`DevTools listening on (ws://\S+)`)

// slowest is how long an answer may take: tests beside others are slow.
const slowest = 4 * time.Minute

// Browser is a running Chromium.
type Browser struct {
	connection *websocket.Conn

	mu      sync.Mutex
	last    int
	waiting map[int]chan answer
	// failed are errors and refused requests that pages wrote to their consoles.
	failed []string
}

type answer struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Start starts Chromium until the end of the test. Where there is none, the test is skipped.
func Start(t *testing.T) *Browser {
	t.Helper()
	program := ""
	for _, name := range programs {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		require.Empty(t, os.Getenv("LODESTONE_COMPLETE"), "there is no Chromium in PATH, and nothing is to be skipped")
		t.Skip("there is no Chromium in PATH: install it (apt-get install chromium) to test the page")
	}
	folder, err := os.MkdirTemp("", "chromium-")
	require.NoError(t, err)
	// Its children write into the folder for a moment longer than it runs.
	t.Cleanup(func() {
		await.Until(t, "the folder of Chromium is removed", func() bool { return os.RemoveAll(folder) == nil })
	})
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--force-color-profile=srgb", "--remote-debugging-port=0", "--user-data-dir="+folder, "about:blank")
	lines, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	gone := make(chan struct{})
	t.Cleanup(func() {
		kill := time.AfterFunc(slowest, cancel)
		<-gone
		kill.Stop()
		cancel()
	})
	address := make(chan string, 1)
	go func() {
		defer close(gone)
		for scanner := bufio.NewScanner(lines); scanner.Scan(); {
			if found := endpoint.FindStringSubmatch(scanner.Text()); found != nil {
				address <- found[1]
			}
		}
		_ = command.Wait()
	}()
	b := &Browser{waiting: map[int]chan answer{}}
	select {
	case at := <-address:
		connection, response, err := websocket.DefaultDialer.Dial(at, nil)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		b.connection = connection
	case <-time.After(slowest):
		cancel()
		require.FailNow(t, "Chromium does not start")
	}
	go b.read()
	t.Cleanup(func() {
		_, _ = b.call("", "Browser.close", nil)
		_ = b.connection.Close()
	})
	return b
}

// read hands answers to those who wait for them.
func (b *Browser) read() {
	for {
		var a answer
		if err := b.connection.ReadJSON(&a); err != nil {
			return
		}
		b.mu.Lock()
		if a.Method == "Runtime.exceptionThrown" || a.Method == "Log.entryAdded" {
			b.failed = append(b.failed, string(a.Params))
		}
		if wanted := b.waiting[a.ID]; wanted != nil {
			delete(b.waiting, a.ID)
			wanted <- a
		}
		b.mu.Unlock()
	}
}

func (b *Browser) call(session, method string, params any) (json.RawMessage, error) {
	b.mu.Lock()
	b.last++
	id, answered := b.last, make(chan answer, 1)
	b.waiting[id] = answered
	request := map[string]any{"id": id, "method": method}
	if params != nil {
		request["params"] = params
	}
	if session != "" {
		request["sessionId"] = session
	}
	err := b.connection.WriteJSON(request)
	b.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	select {
	case a := <-answered:
		if a.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		return a.Result, nil
	case <-time.After(slowest):
		return nil, fmt.Errorf("%s: no answer", method)
	}
}

// Page is a tab.
type Page struct {
	t       *testing.T
	browser *Browser
	session string
}

// Tab opens an empty tab.
func (b *Browser) Tab(t *testing.T) *Page {
	t.Helper()
	p := &Page{t: t, browser: b}
	var target struct {
		TargetID string `json:"targetId"`
	}
	require.NoError(t, json.Unmarshal(p.do("Target.createTarget", map[string]any{"url": "about:blank"}), &target))
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	require.NoError(t, json.Unmarshal(p.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}), &attached))
	p.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Accessibility"} {
		p.do(domain+".enable", nil)
	}
	return p
}

func (p *Page) do(method string, params any) json.RawMessage {
	p.t.Helper()
	result, err := p.browser.call(p.session, method, params)
	require.NoError(p.t, err)
	return result
}

// Go opens an address.
func (p *Page) Go(address string) {
	p.t.Helper()
	p.do("Page.navigate", map[string]any{"url": address})
}

// Eval runs a script in the page, waits for its promise, and decodes what it returns.
func (p *Page) Eval(script string, result any) {
	p.t.Helper()
	require.NoError(p.t, p.eval(script, result))
}

func (p *Page) eval(script string, result any) error {
	raw, err := p.browser.call(p.session, "Runtime.evaluate",
		map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true})
	if err != nil {
		return err
	}
	var evaluated struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	if err := json.Unmarshal(raw, &evaluated); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if evaluated.Exception != nil {
		return fmt.Errorf("%s: %s", script, evaluated.Exception)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(evaluated.Result.Value, result)
}

// Is reports whether a script returns true. While a page is loaded it does not.
func (p *Page) Is(script string) bool {
	var yes bool
	return p.eval("Boolean("+script+")", &yes) == nil && yes
}

// Text returns what an element shows, as innerText.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	var text string
	p.Eval(fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector), &text)
	return text
}

// Looks sets what users prefer, such as prefers-color-scheme: dark, and the size of the window.
func (p *Page) Looks(width, height int, features map[string]string) {
	p.t.Helper()
	list := []map[string]string{}
	for name, value := range features {
		list = append(list, map[string]string{"name": name, "value": value})
	}
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": list})
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// Processor returns how long the main thread of the page was on a processor so far: unlike times by the
// clock that is not what else runs on the machine.
func (p *Page) Processor() time.Duration {
	p.t.Helper()
	p.do("Performance.enable", map[string]any{"timeDomain": "threadTicks"})
	var read struct {
		Metrics []struct {
			Name  string  `json:"name"`
			Value float64 `json:"value"`
		} `json:"metrics"`
	}
	require.NoError(p.t, json.Unmarshal(p.do("Performance.getMetrics", nil), &read))
	for _, metric := range read.Metrics {
		if metric.Name == "TaskDuration" {
			return time.Duration(metric.Value * float64(time.Second))
		}
	}
	require.FailNow(p.t, "Chromium does not measure its tasks")
	return 0
}

// Press presses and releases a key, such as Tab.
func (p *Page) Press(key string, modifiers int) {
	p.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36}
	press := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": modifiers}
	switch {
	case key == "Enter":
		press["text"] = "\r"
	case len(key) == 1:
		press["text"] = key
	}
	p.do("Input.dispatchKeyEvent", press)
	p.do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]})
}

// Type types a text where the focus is.
func (p *Page) Type(text string) {
	p.t.Helper()
	p.do("Input.insertText", map[string]any{"text": text})
}

// Node is what a screen reader is told of an element.
type Node struct{ Role, Name string }

// Accessible returns what screen readers are told, in the order of the page.
func (p *Page) Accessible() []Node {
	p.t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored bool `json:"ignored"`
			Role    struct {
				Value string `json:"value"`
			} `json:"role"`
			Name struct {
				Value string `json:"value"`
			} `json:"name"`
		} `json:"nodes"`
	}
	require.NoError(p.t, json.Unmarshal(p.do("Accessibility.getFullAXTree", nil), &tree))
	nodes := []Node{}
	for _, node := range tree.Nodes {
		if !node.Ignored {
			nodes = append(nodes, Node{node.Role.Value, node.Name.Value})
		}
	}
	return nodes
}

// Screenshot writes what the window shows into a PNG.
func (p *Page) Screenshot(path string) {
	p.t.Helper()
	var shot struct {
		Data string `json:"data"`
	}
	require.NoError(p.t, json.Unmarshal(p.do("Page.captureScreenshot", map[string]any{"format": "png"}), &shot))
	content, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(path, content, 0o600))
}

// Failed returns the errors that pages wrote, and what was refused to them.
func (b *Browser) Failed() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.failed...)
}
