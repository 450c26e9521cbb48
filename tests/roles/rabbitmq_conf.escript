#!/usr/bin/env escript
%% Reads rabbitmq.conf as the broker does: each line of the input is a path; each line of the output has what the file says, as NAME:VALUE in
%% base64 with spaces between, and at its end `refused` where the broker would not start with it.
main([Library]) ->
    %% What the parser logs goes to the same place as the answers.
    logger:set_primary_config(level, none),
    code:add_pathsa(filelib:wildcard(Library ++ "/plugins/*/ebin")),
    Schema = cuttlefish_schema:files(filelib:wildcard(Library ++ "/plugins/*/priv/schema/*.schema")),
    answer(Schema).

answer(Schema) ->
    case io:get_line("") of
        eof -> ok;
        Line ->
            Read = cuttlefish_conf:files([string:trim(Line)]),
            io:format("~s~n", [string:join(told(Read) ++ judged(Schema, Read), " ")]),
            answer(Schema)
    end.

told({errorlist, _}) -> [];
told(Read) -> [in_base64(string:join(Name, ".")) ++ ":" ++ in_base64(Value) || {Name, Value} <- Read].

in_base64(Text) -> binary_to_list(base64:encode(unicode:characters_to_binary(Text))).

judged(_, {errorlist, _}) -> ["refused"];
judged(Schema, Read) ->
    case cuttlefish_generator:map(Schema, Read) of
        {error, _, _} -> ["refused"];
        _ -> []
    end.
