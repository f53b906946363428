package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// RemoteError is what went wrong at the receiver, in its own words.
type RemoteError struct{ Sentence string }

func (e *RemoteError) Error() string { return e.Sentence }

// request is the payload of a Request.
type request struct {
	Op   string          `json:"op"`
	Body json.RawMessage `json:"body,omitempty"`
}

// answer is the payload of an Answer.
type answer struct {
	Error  string          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Call is an exchange as the sender has it. Nil functions have nothing to do.
type Call struct {
	Op   string
	Body any
	// Send sends the data, and returns when there is no more. After an error of its
	// own the connection is closed: the receiver must not take a part for all.
	Send func(send func(payload []byte) error) error
	// Data takes data of the receiver. End is called once when no more comes: at its end,
	// or because the answer has come without it, or the connection was lost. Send may wait
	// for that.
	Data func(payload []byte) error
	End  func()
	// Progress takes what the receiver tells of its progress.
	Progress func(payload []byte)
	// Result is what the answer is decoded into, unless it is nil.
	Result any
}

// errStopped ends Send when the receiver has answered already.
var errStopped = errors.New("the receiver wants no more")

// Do makes an exchange and returns when the answer has come. A *RemoteError is what
// the receiver says went wrong, and the connection can be used on. After any other
// error it is closed.
func (c *Conn) Do(call Call) error {
	body, err := json.Marshal(call.Body)
	if err != nil {
		return fmt.Errorf("encode request %s: %w", call.Op, err)
	}
	encoded, err := json.Marshal(request{Op: call.Op, Body: body})
	if err != nil {
		return fmt.Errorf("encode request %s: %w", call.Op, err)
	}
	if err := c.Send(Request, encoded); err != nil {
		return err
	}
	answered := make(chan struct{})
	sent := make(chan error, 1)
	go func() { sent <- c.sendAll(call.Send, answered) }()
	end := sync.OnceFunc(func() {
		if call.End != nil {
			call.End()
		}
	})
	reply, err := c.await(call, end)
	end()
	if err != nil {
		c.Close()
		// An error of our own reading is the reason, the lost connection the result.
		if sendErr := <-sent; sendErr != nil && !errors.Is(sendErr, ErrLost) {
			return sendErr
		}
		return err
	}
	close(answered)
	if err := <-sent; err != nil {
		return err
	}
	if reply.Error != "" {
		return &RemoteError{Sentence: reply.Error}
	}
	if call.Result != nil {
		if err := json.Unmarshal(reply.Result, call.Result); err != nil {
			c.Close()
			return fmt.Errorf("decode the receiver's answer to %s: %w", call.Op, err)
		}
	}
	return nil
}

// sendAll sends the data of a call and its end.
func (c *Conn) sendAll(send func(func([]byte) error) error, answered <-chan struct{}) error {
	if send != nil {
		err := send(func(payload []byte) error {
			select {
			case <-answered:
				return errStopped
			default:
				return c.Send(Data, payload)
			}
		})
		if err != nil && !errors.Is(err, errStopped) {
			c.Close()
			return err
		}
	}
	return c.Send(End, nil)
}

// await receives until the answer.
func (c *Conn) await(call Call, end func()) (reply answer, err error) {
	for {
		kind, payload, err := c.Receive()
		if err != nil {
			return reply, err
		}
		switch kind {
		case Data:
			if call.Data == nil {
				return reply, fmt.Errorf("%w: data that nobody asked for", ErrLost)
			}
			if err := call.Data(payload); err != nil {
				return reply, err
			}
		case End:
			end()
		case Progress:
			if call.Progress != nil {
				call.Progress(payload)
			}
		case Answer:
			if err := json.Unmarshal(payload, &reply); err != nil {
				return reply, fmt.Errorf("%w: decode an answer: %w", ErrLost, err)
			}
			return reply, nil
		default:
			return reply, fmt.Errorf("%w: a frame of kind %q", ErrLost, kind)
		}
	}
}

// Incoming is an exchange as the receiver has it.
type Incoming struct {
	Op   string
	Body json.RawMessage
	conn *Conn
	over bool
}

// Next gives the next data of the sender, and io.EOF at its end.
func (in *Incoming) Next() ([]byte, error) {
	if in.over {
		return nil, io.EOF
	}
	kind, payload, err := in.conn.Receive()
	if err != nil {
		return nil, err
	}
	switch kind {
	case Data:
		return payload, nil
	case End:
		in.over = true
		return nil, io.EOF
	default:
		in.conn.Close()
		return nil, fmt.Errorf("%w: a frame of kind %q among data", ErrLost, kind)
	}
}

// Send sends data to the sender.
func (in *Incoming) Send(payload []byte) error { return in.conn.Send(Data, payload) }

// SendEnd says that no more data follows.
func (in *Incoming) SendEnd() error { return in.conn.Send(End, nil) }

// Progress tells the sender how far we are.
func (in *Incoming) Progress(progress any) error {
	encoded, err := json.Marshal(progress)
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}
	return in.conn.Send(Progress, encoded)
}

// Serve takes exchanges one after another until the connection ends, whose error it
// returns. Handle's error is told to the sender in its words; ErrLost ends the
// connection. Data that handle has left is thrown away.
func (c *Conn) Serve(handle func(in *Incoming) (result any, err error)) error {
	defer c.Close()
	for {
		kind, payload, err := c.Receive()
		if err != nil {
			return err
		}
		var asked request
		if kind != Request || json.Unmarshal(payload, &asked) != nil {
			return fmt.Errorf("%w: a frame of kind %q is no request", ErrLost, kind)
		}
		in := &Incoming{Op: asked.Op, Body: asked.Body, conn: c}
		result, err := handle(in)
		if errors.Is(err, ErrLost) {
			return err
		}
		var reply answer
		if err != nil {
			reply.Error = err.Error()
		} else if reply.Result, err = json.Marshal(result); err != nil {
			return fmt.Errorf("encode answer to %s: %w", asked.Op, err)
		}
		encoded, err := json.Marshal(reply)
		if err != nil {
			return fmt.Errorf("encode answer to %s: %w", asked.Op, err)
		}
		if err := c.Send(Answer, encoded); err != nil {
			return err
		}
		for !in.over {
			if _, err := in.Next(); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
	}
}
