// The session router's test with a client of another language. Reads the URL from standard input.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	var url string
	must(fmt.Scanln(&url))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	connection := must(amqp.Dial(url))
	channel := must(connection.Channel())
	queue := must(channel.QueueDeclare("", false, true, true, false, nil))

	check(channel.Confirm(false))
	for _, size := range []int{0, 1, 131064, 131065, 5_000_000} {
		body := bytes.Repeat([]byte{0xce}, size)
		confirmation := must(channel.PublishWithDeferredConfirmWithContext(ctx, "", queue.Name, false, false, amqp.Publishing{Body: body}))
		if !must(confirmation.WaitContext(ctx)) {
			log.Fatal("not confirmed")
		}
		delivery, ok, err := channel.Get(queue.Name, true)
		check(err)
		if !ok || !bytes.Equal(delivery.Body, body) {
			log.Fatalf("the message of %d bytes came back otherwise", size)
		}
	}
	fmt.Println("confirms and large messages")

	deliveries := must(channel.Consume(queue.Name, "", false, true, false, false, nil))
	for number := 0; number < 500; number++ {
		check(channel.PublishWithContext(ctx, "", queue.Name, false, false, amqp.Publishing{Body: []byte(fmt.Sprint(number))}))
	}
	for number := 0; number < 500; number++ {
		delivery := <-deliveries
		if string(delivery.Body) != fmt.Sprint(number) {
			log.Fatalf("%s instead of %d", delivery.Body, number)
		}
		check(delivery.Ack(false))
	}
	fmt.Println("consumer")

	transacted := must(connection.Channel())
	other := must(transacted.QueueDeclare("", false, true, true, false, nil))
	check(transacted.Tx())
	check(transacted.PublishWithContext(ctx, "", other.Name, false, false, amqp.Publishing{Body: []byte("no")}))
	check(transacted.TxRollback())
	check(transacted.PublishWithContext(ctx, "", other.Name, false, false, amqp.Publishing{Body: []byte("yes")}))
	check(transacted.TxCommit())
	delivery, ok, err := transacted.Get(other.Name, true)
	check(err)
	if !ok || string(delivery.Body) != "yes" {
		log.Fatal("the transaction")
	}
	check(transacted.TxCommit())
	fmt.Println("transactions")

	failing := must(connection.Channel())
	if _, err := failing.QueueDeclarePassive("missing", false, false, false, false, nil); err == nil || err.(*amqp.Error).Code != 404 {
		log.Fatalf("404 was expected, not %v", err)
	}
	failing = must(connection.Channel())
	if err := failing.Ack(4711, false); err != nil {
		log.Fatal(err)
	}
	if err := <-failing.NotifyClose(make(chan *amqp.Error, 1)); err == nil || err.Code != 406 {
		log.Fatalf("406 was expected, not %v", err)
	}
	fmt.Println("channel errors")
	check(connection.Close())
	fmt.Println("all done")
}
